"""The traces of runs: the steps, turns and tool calls of each run as spans."""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
from cachetools import FIFOCache
from typing_extensions import override

from symphony import to_thread
from symphony.agents.events import AgentEvent, ItemFinished, ItemStarted, SessionStarted, Text
from symphony.config import resolve_secret
from symphony.daemon.context import RuntimeContext
from symphony.daemon.runs.progress import ProgressReporter
from symphony.domain import MAX_LINE_CHARS, CheckRun, Redaction, RunFacts, SymphonyError
from symphony.observability.span_names import Attribute, SpanName
from symphony.scheduler import Outcome, StartRun

if TYPE_CHECKING:  # the extra `otel` may not be installed
    from opentelemetry.trace import Span

    from symphony.observability.tracing import Tracing

MAX_CONTENT_CHARS: Final = 4_096
MAX_ISSUES: Final = 10_000
_NOT_DONE: Final = frozenset({"failed", "declined"})


class RunTrace:
    """The trace of a run. This base class is for a daemon without tracing and does nothing.

    Attributes:
        log_fields: fields of all log lines of the run.
    """

    log_fields: Mapping[str, str] = MappingProxyType({})

    def step(self, name: SpanName, detail: str | None = None) -> AbstractContextManager[None]:
        """A step of the run, from entering to leaving; `detail` is the name of the hook."""
        del name, detail
        return nullcontext()

    def turn(self, number: int, progress: ProgressReporter) -> AbstractContextManager[None]:
        """A turn; `progress` has its usage."""
        del number, progress
        return nullcontext()

    def on_event(self, event: AgentEvent, skills: tuple[str, ...] = ()) -> None:
        """The agent sent an event; `skills` are the skills that it opened with it."""

    def on_check(self, check: CheckRun) -> None:
        """A command of `verify` has just ended."""

    def end(self, outcome: Outcome, facts: RunFacts) -> None:
        """The run is over."""


class SpanTrace(RunTrace):
    """Makes the spans of one run.

    Args:
        tracing: makes and sends spans.
        root: the span of the whole run.
        agent: name and kind of the agent, and the model if it is configured.
        content: whether spans contain commands, arguments, results and messages.
        redaction: masks secrets in everything in a span.
    """

    def __init__(
        self,
        tracing: "Tracing",
        root: "Span",
        *,
        agent: tuple[str, str, str | None],
        content: bool,
        redaction: Redaction,
    ) -> None:
        self._tracing = tracing
        self._root = root
        self._agent, self._kind, self._model = agent
        self._content = content
        self._redaction = redaction
        self._turn: Span | None = None
        self._tools: dict[str, Span] = {}
        self._last_text = ""
        self.log_fields = {"trace_id": f"{root.get_span_context().trace_id:032x}"}

    @override
    @contextmanager
    def step(self, name: SpanName, detail: str | None = None) -> Iterator[None]:
        hook = {} if detail is None else {Attribute.HOOK.value: detail}
        span = self._tracing.start(name, self._root, hook)
        with self._ended(span):
            yield

    @override
    @contextmanager
    def turn(self, number: int, progress: ProgressReporter) -> Iterator[None]:
        attributes: dict[str, str | int | float] = {
            Attribute.OPERATION: SpanName.TURN,
            Attribute.AGENT: self._agent,
            Attribute.PROVIDER: self._kind,
            Attribute.TURN: number,
        }
        if self._model is not None:
            attributes[Attribute.MODEL] = self._model
        before, self._last_text = progress.facts.tokens, ""
        self._turn = span = self._tracing.start(f"{SpanName.TURN} {self._agent}", self._root, attributes)
        with self._ended(span):
            try:
                yield
            finally:
                used, cost_usd = progress.facts.tokens.above(before), progress.turn_cost.cost_usd
                span.set_attribute(Attribute.INPUT_TOKENS, used.input_tokens)
                span.set_attribute(Attribute.OUTPUT_TOKENS, used.output_tokens)
                if cost_usd is not None:
                    span.set_attribute(Attribute.COST, cost_usd)
                self._set_content(span, Attribute.OUTPUT, self._last_text)
                for tool in self._tools.values():
                    tool.end()
                self._tools.clear()
                self._turn = None

    @override
    def on_event(self, event: AgentEvent, skills: tuple[str, ...] = ()) -> None:
        match event:
            case SessionStarted() if self._turn is not None:
                self._turn.set_attribute(Attribute.CONVERSATION, event.thread_id)
            case Text():
                self._last_text = event.message
            case ItemStarted() if self._turn is not None:
                attributes = {
                    Attribute.OPERATION.value: SpanName.TOOL.value,
                    Attribute.TOOL.value: event.kind,
                }
                if event.item_id:
                    attributes[Attribute.TOOL_CALL] = event.item_id
                if skills:
                    attributes[Attribute.SKILL] = ", ".join(skills)
                span = self._tracing.start(f"{SpanName.TOOL} {event.kind}", self._turn, attributes)
                self._set_content(span, Attribute.INPUT, event.input)
                self._tools[event.item_id or event.kind] = span
            case ItemFinished():
                finished = self._tools.pop(event.item_id or event.kind, None)
                if finished is not None:
                    if event.exit_code is not None:
                        finished.set_attribute(Attribute.EXIT_CODE, event.exit_code)
                    self._set_content(finished, Attribute.RESULT, event.output)
                    if event.status in _NOT_DONE:
                        self._tracing.fail(finished, event.status)
                    finished.end()
            case _:
                pass

    @override
    def on_check(self, check: CheckRun) -> None:
        now_ns = time.time_ns()
        attributes: dict[str, str | int | float] = {Attribute.CHECK: check.name}
        if check.exit_code is not None:
            attributes[Attribute.EXIT_CODE] = check.exit_code
        began_ns = now_ns - check.duration_ms * 1_000_000
        span = self._tracing.start(SpanName.CHECK, self._root, attributes, start_ns=began_ns)
        self._set_content(span, Attribute.RESULT, check.output_tail)
        if not check.passed:
            self._tracing.fail(span, check.result)
        span.end(now_ns)

    @override
    def end(self, outcome: Outcome, facts: RunFacts) -> None:
        root = self._root
        root.set_attribute(Attribute.OUTCOME, outcome.kind.value)
        root.set_attribute(Attribute.COMMITS, facts.work.commits)
        if outcome.delivered is not None:
            root.set_attribute(Attribute.BRANCH, outcome.delivered.branch)
        if outcome.failure is not None:
            self._tracing.fail(root, outcome.failure.category.value)
        root.end()

    @contextmanager
    def _ended(self, span: "Span") -> Iterator[None]:
        """End the span at the end of the block, with the type of its error, if any."""
        try:
            yield
        except SymphonyError as error:
            self._tracing.fail(span, error.failure.category.value)
            raise
        except BaseException as error:
            self._tracing.fail(span, type(error).__name__)
            raise
        finally:
            span.end()

    def _set_content(self, span: "Span", attribute: Attribute, text: str) -> None:
        if self._content and text:
            span.set_attribute(attribute, self._redaction.text(text)[:MAX_CONTENT_CHARS])


class Traces:
    """Starts the traces of runs.

    Args:
        tracing: makes and sends spans; `None` if traces are off.
        found_ms: returns when a poll found a waiting issue, by id; `None` if it did not wait.
        now_ms: the monotonic clock.
    """

    def __init__(
        self,
        tracing: "Tracing | None",
        *,
        found_ms: Callable[[str], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._tracing = tracing
        self._found_ms = found_ms
        self._now_ms = now_ms
        self._previous: FIFOCache[str, str] = FIFOCache(MAX_ISSUES)  # the last run of an issue

    def trace_id(self, run_id: str | None) -> str | None:
        """The id of the trace of a run, in hex; `None` if traces are off."""
        return None if self._tracing is None or run_id is None else self._tracing.trace_id(run_id)

    @property
    def failure(self) -> str | None:
        """Why the last sending of spans failed; `None` if it succeeded, or if traces are off."""
        return None if self._tracing is None else self._tracing.last_failure

    def start(self, command: StartRun, context: RuntimeContext) -> RunTrace:
        """Start the trace of a run, with the time that its issue waited."""
        if self._tracing is None:
            return RunTrace()
        agent = context.workflow.agents[command.agent]
        attributes: dict[str, str | int | float] = {
            Attribute.OPERATION: "invoke_workflow",
            Attribute.WORKFLOW: "symphony.run",
            Attribute.RUN: command.run_id,
            Attribute.ISSUE: context.redaction.line(command.issue.identifier, MAX_LINE_CHARS),
            Attribute.AGENT: agent.name,
            Attribute.ATTEMPT: command.attempt or 0,
        }
        now_ns = time.time_ns()
        found_ms = self._found_ms(command.issue.id)
        start_ns = now_ns if found_ms is None else now_ns - (self._now_ms() - found_ms) * 1_000_000
        root = self._tracing.start_run(
            command.run_id,
            start_ns=start_ns,
            previous_run_id=self._previous.pop(command.issue.id, None),
            attributes=attributes,
        )
        self._previous[command.issue.id] = command.run_id
        self._tracing.start(SpanName.QUEUE, root, {}, start_ns=start_ns).end(now_ns)
        return SpanTrace(
            self._tracing,
            root,
            agent=(agent.name, agent.kind, agent.settings.model),
            content=context.settings.tracing.content,
            redaction=context.redaction,
        )


@asynccontextmanager
async def open_traces(
    context: RuntimeContext,
    *,
    seed: str,
    environment: Mapping[str, str],
    found_ms: Callable[[str], int | None],
    now_ms: Callable[[], int],
) -> AsyncIterator[Traces]:
    """The traces of one daemon; sends the rest at the end, for a few seconds at most.

    Args:
        context: its settings say whether and where traces are sent, until the next start of the daemon.
        seed: distinguishes the runs of this daemon from those of others.
        environment: has the variables that headers refer to.
        found_ms: as of `Traces`.
        now_ms: as of `Traces`.
    """
    tracing = await to_thread.run_sync(open_tracing, context, seed, environment)  # it loads slowly
    try:
        yield Traces(tracing, found_ms=found_ms, now_ms=now_ms)
    finally:
        if tracing is not None:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(tracing.close)


def open_tracing(context: RuntimeContext, seed: str, environment: Mapping[str, str]) -> "Tracing | None":
    """What makes and sends spans; `None` if traces are off."""
    settings = context.settings.tracing
    if settings.endpoint is None:
        return None
    from symphony.observability.tracing import Tracing  # noqa: PLC0415 - the extra may not be installed

    headers: dict[str, str] = {}
    for name, value in settings.headers.items():
        if secret := resolve_secret(value, environment=environment):
            headers[name] = secret.reveal()
    return Tracing(
        settings.endpoint,
        headers=headers,
        seed=seed,
        redact=lambda text: context.redaction.line(text, MAX_LINE_CHARS),
        now_s=time.monotonic,
    )
