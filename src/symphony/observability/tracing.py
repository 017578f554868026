"""Makes OpenTelemetry spans and sends them by OTLP over HTTP as protobuf. Needs the extra `otel`."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from typing_extensions import override

from symphony.http import EnvironmentVariableError, proxy_for
from symphony.observability.span_names import CONVENTIONS, Attribute, SpanName

MAX_WAITING_SPANS: Final = 2_048
EXPORT_TIMEOUT_S: Final = 3
SEND_EVERY_MS: Final = 5_000
LOG_EVERY_S: Final = 60.0
_root: ContextVar[trace.SpanContext | None] = ContextVar("symphony_root_span", default=None)
_CERTIFICATES: Final = ("OTEL_EXPORTER_OTLP_CERTIFICATE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_exporter_log = logging.getLogger("opentelemetry")
_log = structlog.get_logger(__name__)


def trace_id(seed: str, run_id: str) -> str:
    """The id of the trace of a run, in hex: a hash, so every surface can compute it."""
    return sha256(f"{seed}\0{run_id}".encode()).hexdigest()[:32]


class _Ids(RandomIdGenerator):
    """Takes the ids of a root span from the context in which it starts."""

    @override
    def generate_trace_id(self) -> int:
        root = _root.get()
        return super().generate_trace_id() if root is None else root.trace_id

    @override
    def generate_span_id(self) -> int:
        root = _root.get()
        return super().generate_span_id() if root is None else root.span_id


class _ExportLog(logging.Handler):
    """Reduces the exporter's log to one line a minute, and remembers the last failure."""

    def __init__(self, now_s: Callable[[], float], redact: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._now_s = now_s
        self._redact = redact
        self._logged_s: float | None = None
        self.failures = 0
        self.last_failure: str | None = None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.failures += 1
        # In older versions of the exporter only the exception has the reason.
        raised = record.exc_info and record.exc_info[1]
        told = record.getMessage()
        self.last_failure = self._redact(f"{told} {raised}" if raised and str(raised) not in told else told)
        if self._logged_s is None or self._now_s() - self._logged_s >= LOG_EVERY_S:
            self._logged_s = self._now_s()
            _log.warning("traces_not_sent", reason=self.last_failure, failures=self.failures)


def _check_environment(address: str) -> None:
    """Raise `EnvironmentVariableError` for a variable at which the exporter would fail without naming it."""
    proxy_for(address, os.environ)
    for name in _CERTIFICATES if address.startswith("https:") else ():
        if (path := os.environ.get(name)) and not Path(path).exists():
            raise EnvironmentVariableError(f"{name} names a file that does not exist")


class _Exporter(OTLPSpanExporter):
    """Forgets the last failure when the collector takes spans again."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], export_log: _ExportLog) -> None:
        super().__init__(endpoint=endpoint, headers=dict(headers), timeout=EXPORT_TIMEOUT_S)
        self._address = endpoint
        self._export_log = export_log

    @override
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            _check_environment(self._address)
            sent = super().export(spans)
        except (EnvironmentVariableError, OSError) as error:
            # Older exporters raise errors that newer ones log.
            _exporter_log.warning("%s", error)
            return SpanExportResult.FAILURE
        if sent is SpanExportResult.SUCCESS:
            self._export_log.last_failure = None
        return sent


class Tracing:
    """Makes spans and sends them in a thread; at most `MAX_WAITING_SPANS` wait, older ones are dropped.

    Args:
        endpoint: the URL that receives traces, such as `http://127.0.0.1:4318/v1/traces`.
        headers: the headers of each request.
        seed: distinguishes the runs of this daemon from those of others.
        redact: masks secrets in logged failures.
        now_s: the monotonic clock.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str],
        seed: str,
        redact: Callable[[str], str],
        now_s: Callable[[], float],
    ) -> None:
        self._seed = seed
        self._export_log = _ExportLog(now_s, redact)
        self._logger = logging.getLogger("opentelemetry")
        self._propagate = self._logger.propagate
        self._logger.addHandler(self._export_log)
        self._logger.propagate = False
        resource = Resource.create(
            {"service.name": "symphony", "service.version": version("symphony-orchestrator")},
            schema_url=CONVENTIONS,
        )
        self._exporter = _Exporter(endpoint, headers, self._export_log)
        self._provider = TracerProvider(resource=resource, id_generator=_Ids(), shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter, max_queue_size=MAX_WAITING_SPANS, schedule_delay_millis=SEND_EVERY_MS
            )
        )
        self._tracer = self._provider.get_tracer("symphony", schema_url=CONVENTIONS)

    @property
    def last_failure(self) -> str | None:
        """Why the last sending of spans failed; `None` if it succeeded or nothing was sent yet."""
        return self._export_log.last_failure

    def check(self) -> str | None:
        """Send an empty request; return why that failed, or `None`."""
        self._exporter.export(())
        return self.last_failure

    def trace_id(self, run_id: str) -> str:
        """The id of the trace of a run, in hex."""
        return trace_id(self._seed, run_id)

    def start_run(
        self,
        run_id: str,
        *,
        start_ns: int,
        previous_run_id: str | None,
        attributes: Mapping[str, str | int | float],
    ) -> trace.Span:
        """Start the root span of a run, with a link to the trace of the previous run."""
        links = [] if previous_run_id is None else [trace.Link(self._root_of(previous_run_id))]
        reset = _root.set(self._root_of(run_id))
        try:
            return self._tracer.start_span(
                SpanName.RUN,
                context=trace.set_span_in_context(trace.INVALID_SPAN),
                links=links,
                start_time=start_ns,
                attributes=attributes,
            )
        finally:
            _root.reset(reset)

    def _root_of(self, run_id: str) -> trace.SpanContext:
        identifier = int(self.trace_id(run_id), 16)
        return trace.SpanContext(identifier, identifier >> 64, is_remote=False)

    def start(
        self,
        name: str,
        parent: trace.Span,
        attributes: Mapping[str, str | int | float],
        *,
        start_ns: int | None = None,
    ) -> trace.Span:
        """Start a span below another one, by default now."""
        context = trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context, attributes=attributes, start_time=start_ns)

    def fail(self, span: trace.Span, error: str) -> None:
        """Mark the span as failed; `error` is a category from a closed set."""
        span.set_status(trace.StatusCode.ERROR)
        span.set_attribute(Attribute.ERROR, error)

    def close(self) -> None:
        """Send the waiting spans, for at most `EXPORT_TIMEOUT_S`."""
        self._provider.shutdown()
        self._logger.removeHandler(self._export_log)
        self._logger.propagate = self._propagate
