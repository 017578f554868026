"""Accepts webhooks of the tracker (`POST /webhooks/<kind>`) and of the forge (`POST /webhooks/forge`).

Off unless `tracker.webhook_secret` or `forge.webhook_secret` is set. A relevant delivery of the tracker makes
the daemon poll the tracker; one of the forge makes it observe its pull requests. The content is not used.

- A repeated delivery is recognised by its id and its body, so a replay has no effect.
- Deliveries are gathered briefly, and there is a pause between polls, so a flood causes few polls.
- A poll because of a webhook obeys the circuit breaker and the rate limits like any other.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import structlog
from cachetools import FIFOCache
from typing_extensions import override

from symphony.api.interface import WebhookAnswer, WebhookDeniedError
from symphony.api.observer import Observer
from symphony.config import resolve_secret
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.scheduler import WakeAsked
from symphony.services.forges import FORGES
from symphony.trackers.registry import tracker_kind
from symphony.trackers.webhooks import WebhookDelivery, WebhookRejectedError, WebhookScheme

FORGE: Final = "forge"
"""The name of the forge as a sender, because the tracker may have the same kind."""

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


class Webhooks(Observer):
    """Implements `api.interface.WebhookReceiver`.

    Args:
        core: gets a `WakeAsked` when the daemon should poll the tracker; environment and wall clock.
        look: called when the daemon should observe its pull requests.
        on_result: called with the result of each delivery.
        sleep: waits between polls.
    """

    def __init__(
        self,
        core: Core,
        look: Callable[[], None],
        *,
        on_result: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._core = core
        self._signed: dict[str, tuple[WebhookScheme, str | None]] = {}  # by sender, with its setting
        self._on_result = on_result
        self._seen: FIFOCache[str, None] = FIFOCache(MAX_SEEN)
        self._own_comments: FIFOCache[str, None] = FIFOCache(MAX_OWN)
        self._tracker = _Gatherer(lambda: core.post(WakeAsked(reason="webhook")), self._is_news, sleep)
        self._forge = _Gatherer(look, self._is_news, sleep)
        self._logged_ms: dict[str, int] = {}

    @property
    def enabled(self) -> bool:
        """See `api.interface.WebhookReceiver`."""
        return any(self._scheme_and_secret(sender) for sender in self._signed)

    def reconfigure(self, context: RuntimeContext) -> None:
        """Accept webhooks of the tracker and the forge of new settings."""
        tracker, forge = context.settings.tracker, context.settings.forge
        schemes = {tracker.kind: (tracker_kind(tracker.kind).webhooks, tracker.webhook_secret)}
        if forge.kind is not None:
            schemes[FORGE] = (FORGES[forge.kind].webhooks, forge.webhook_secret)
        self._signed = {
            sender: (scheme, secret) for sender, (scheme, secret) in schemes.items() if scheme is not None
        }

    def check_headers(self, sender: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        """See `api.interface.WebhookReceiver`."""
        scheme, _ = self._expected(sender)
        if scheme.handshake_header is not None and (word := headers.get(scheme.handshake_header)):
            if not _HANDSHAKE.fullmatch(word):
                raise self._denied(WebhookRejectedError("webhook_body", "the handshake is malformed"))
            _log.info("webhook_handshake", sender=sender)
            self._on_result("handshake")
            return WebhookAnswer(status="handshake", code=200, headers={scheme.handshake_header: word})
        try:
            scheme.require_signature(headers)
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        return None

    def receive(self, sender: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """See `api.interface.WebhookReceiver`."""
        scheme, secret = self._expected(sender)
        try:
            delivery = scheme.verify(headers, body, secret=secret, now_ms=self._core.wall_ms())
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        status = self._take(sender, delivery)
        self._on_result(status)
        return WebhookAnswer(status=status)

    def _take(self, sender: str, delivery: WebhookDelivery) -> str:
        keys = [f"{sender} {key}" for key in delivery.keys]
        if any(key in self._seen for key in keys):
            _log.debug("webhook_repeated", sender=sender)
            return "duplicate"
        for key in keys:
            self._seen[key] = None
        if not self._is_news(delivery):
            return "ignored"
        (self._forge if sender == FORGE else self._tracker).add(delivery)
        _log.debug("webhook_accepted", sender=sender)
        return "accepted"

    @override
    def comment_written(self, issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
        self.ignore_comment(comment_id)

    def ignore_comment(self, comment_id: str) -> None:
        """Note that the daemon wrote this comment, so that deliveries about it are not relevant."""
        self._own_comments[comment_id.rpartition("/")[2]] = None

    async def run(self) -> None:
        """Make the daemon poll after relevant deliveries, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tracker.run)
            tasks.start_soon(self._forge.run)

    def _expected(self, sender: str) -> tuple[WebhookScheme, str]:
        """How deliveries of the sender are signed; raises if none are accepted."""
        found = self._scheme_and_secret(sender)
        if found is None:
            raise WebhookDeniedError(404, "not_found", "there is no such route")
        return found

    def _scheme_and_secret(self, sender: str) -> tuple[WebhookScheme, str] | None:
        scheme, written = self._signed.get(sender, (None, None))
        secret = resolve_secret(written, environment=self._core.environment)
        return None if scheme is None or secret is None else (scheme, secret.reveal())

    def _is_news(self, delivery: WebhookDelivery) -> bool:
        return delivery.is_news(self._own_comments.__contains__)

    def _denied(self, error: WebhookRejectedError) -> WebhookDeniedError:
        """The error for the client.

        Logged at most once a minute per reason, because anyone can send requests.
        """
        self._on_result("refused")
        now_ms = self._core.wall_ms()
        if now_ms - self._logged_ms.get(error.code, -_LOG_EVERY_MS) >= _LOG_EVERY_MS:
            self._logged_ms[error.code] = now_ms
            _log.warning("webhook_refused", code=error.code, reason=error.message)
        return WebhookDeniedError(_STATUS[error.code], error.code, error.message)


class _Gatherer:
    """Turns the deliveries of a short time into one poll, with a pause between polls.

    Deliveries are judged again before the poll, because the id of a comment by the daemon may have become
    known meanwhile.
    """

    def __init__(
        self,
        look: Callable[[], None],
        is_news: Callable[[WebhookDelivery], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._look, self._is_news, self._sleep = look, is_news, sleep
        self._waiting: list[WebhookDelivery] = []
        self._received = anyio.Event()

    def add(self, delivery: WebhookDelivery) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(delivery)
        self._received.set()

    async def run(self) -> None:
        while True:
            await self._received.wait()
            await self._sleep(GATHER_S)
            waiting, self._waiting, self._received = self._waiting, [], anyio.Event()
            if any(map(self._is_news, waiting)):
                self._look()
                await self._sleep(PAUSE_S)
