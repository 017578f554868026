"""Accepts webhooks of trackers (`POST /webhooks/<tracker>`): each relevant one makes the daemon poll.

Off unless `tracker.webhook_secret` is set. The content is not used: a poll reads the tracker anyway.

- A delivery that was seen before is recognised by its id and its body, so a replayed one does nothing.
- Deliveries are gathered for a moment, and there is a pause between polls, so a flood costs few polls.
- A poll of a webhook obeys the circuit breaker and the rate limits like any other.
"""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import structlog

from symphony.api.interface import WebhookAnswer, WebhookDeniedError
from symphony.config import resolve_secret
from symphony.daemon.context import RuntimeContext
from symphony.scheduler import Event, WakeAsked
from symphony.trackers.registry import tracker_kind
from symphony.trackers.webhooks import Delivery, WebhookRejectedError, WebhookScheme

GATHER_S: Final = 0.5
PAUSE_S: Final = 4.5
MAX_SEEN: Final = 4_096
MAX_OWN: Final = 4_096
MAX_WAITING: Final = 256
_LOG_EVERY_MS: Final = 60_000
_HANDSHAKE: Final = re.compile(r"[A-Za-z0-9_-]{8,256}")
_STATUS: Final = {
    "webhook_body": 400,
    "webhook_unsigned": 401,
    "webhook_signature": 401,
    "webhook_stale": 401,
}
_log = structlog.get_logger(__name__)


class Webhooks:
    """Implements `api.interface.WebhookReceiver`.

    Args:
        context: the context in force; `None` before the daemon serves.
        post: takes a `WakeAsked` when the daemon should poll.
        environment: where `$NAME` is looked up.
        now_ms: the wall clock, in milliseconds since 1970.
        on_result: called with how each delivery was judged.
        sleep: waits between polls.
    """

    def __init__(
        self,
        context: Callable[[], RuntimeContext | None],
        post: Callable[[Event], None],
        *,
        environment: Mapping[str, str],
        now_ms: Callable[[], int],
        on_result: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._context = context
        self._post = post
        self._environment = environment
        self._now_ms = now_ms
        self._on_result = on_result
        self._sleep = sleep
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._own_comments: OrderedDict[str, None] = OrderedDict()
        self._waiting: list[Delivery] = []
        self._received = anyio.Event()
        self._logged_ms: dict[str, int] = {}

    @property
    def enabled(self) -> bool:
        """See `api.interface.WebhookReceiver`."""
        return self._scheme_and_secret() is not None

    def check_headers(self, tracker: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        """See `api.interface.WebhookReceiver`."""
        scheme, _ = self._expected(tracker)
        if scheme.handshake_header is not None and (word := headers.get(scheme.handshake_header)):
            if not _HANDSHAKE.fullmatch(word):
                raise self._denied(WebhookRejectedError("webhook_body", "the handshake is malformed"))
            _log.info("webhook_handshake", tracker=tracker)
            self._on_result("handshake")
            return WebhookAnswer(status="handshake", code=200, headers={scheme.handshake_header: word})
        try:
            scheme.require_signature(headers)
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        return None

    def receive(self, tracker: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """See `api.interface.WebhookReceiver`."""
        scheme, secret = self._expected(tracker)
        try:
            delivery = scheme.verify(headers, body, secret=secret, now_ms=self._now_ms())
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        status = self._take(tracker, delivery)
        self._on_result(status)
        return WebhookAnswer(status=status)

    def _take(self, tracker: str, delivery: Delivery) -> str:
        if any(name in self._seen for name in delivery.keys):
            _log.debug("webhook_repeated", tracker=tracker)
            return "duplicate"
        for name in delivery.keys:
            _remember(self._seen, name, MAX_SEEN)
        if not delivery.is_news(self._is_own_comment):
            return "ignored"
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(delivery)
        self._received.set()
        _log.debug("webhook_accepted", tracker=tracker)
        return "accepted"

    def ignore_comment(self, comment_id: str) -> None:
        """The daemon wrote this comment: deliveries about it are not relevant."""
        _remember(self._own_comments, comment_id.rpartition("/")[2], MAX_OWN)

    async def run(self) -> None:
        """Make the daemon poll after relevant deliveries, until cancelled.

        Deliveries are judged again before the poll: the id of a comment that the daemon wrote may have become
        known meanwhile.
        """
        while True:
            await self._received.wait()
            await self._sleep(GATHER_S)
            waiting, self._waiting, self._received = self._waiting, [], anyio.Event()
            if any(delivery.is_news(self._is_own_comment) for delivery in waiting):
                self._post(WakeAsked(reason="webhook"))
                await self._sleep(PAUSE_S)

    def _expected(self, tracker: str) -> tuple[WebhookScheme, str]:
        """How deliveries of the tracker are signed; raises if none are accepted."""
        context, found = self._context(), self._scheme_and_secret()
        if found is None or context is None or context.settings.tracker.kind != tracker:
            raise WebhookDeniedError(404, "not_found", "there is no such route")
        return found

    def _scheme_and_secret(self) -> tuple[WebhookScheme, str] | None:
        context = self._context()
        if context is None:
            return None
        settings = context.settings.tracker
        scheme = tracker_kind(settings.kind).webhooks
        secret = resolve_secret(settings.webhook_secret, environment=self._environment)
        return None if scheme is None or secret is None else (scheme, secret.reveal())

    def _is_own_comment(self, comment_id: str) -> bool:
        return comment_id in self._own_comments

    def _denied(self, error: WebhookRejectedError) -> WebhookDeniedError:
        """The error for the client. Logged at most once a minute per reason: anyone can send requests."""
        self._on_result("refused")
        now_ms = self._now_ms()
        if now_ms - self._logged_ms.get(error.code, -_LOG_EVERY_MS) >= _LOG_EVERY_MS:
            self._logged_ms[error.code] = now_ms
            _log.warning("webhook_refused", code=error.code, reason=error.message)
        return WebhookDeniedError(_STATUS[error.code], error.code, error.message)


def _remember(seen: OrderedDict[str, None], name: str, at_most: int) -> None:
    seen[name] = None
    if len(seen) > at_most:
        seen.popitem(last=False)
