"""Takes what trackers send (`POST /webhooks/<tracker>`), and wakes the poller; it does nothing else with it.

Off unless `tracker.webhook_secret` is set. A delivery that came before is known by its id and by its body, so
one that somebody caught and sends again does nothing. News are gathered for a moment and become one wake, and
between wakes there is a pause: a storm costs a poll now and then. A wake is no more than that: an open
circuit, a pause that the tracker asked for and the limits of the credential hold for it as for any poll.
"""

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio
import structlog

from symphony.api.interface import WebhookAnswer, WebhookDeniedError
from symphony.config import resolve_secret
from symphony.daemon.comments import IssueComments, Remember
from symphony.daemon.context import RuntimeContext
from symphony.journal.model import CommentRecord
from symphony.scheduler import Event, WakeAsked
from symphony.trackers.registry import tracker_kind
from symphony.trackers.webhooks import Delivery, WebhookRejectedError, WebhookScheme

GATHER_S = 0.5
PAUSE_S = 4.5
MAX_SEEN = 4_096
MAX_OWN = 4_096
MAX_WAITING = 256
_TELL_EVERY_MS = 60_000
_HANDSHAKE = re.compile(r"[A-Za-z0-9_-]{8,256}")
_STATUS = {"webhook_body": 400, "webhook_unsigned": 401, "webhook_signature": 401, "webhook_stale": 401}
_log = structlog.get_logger(__name__)


class Webhooks:
    """Implements `api.interface.Hooks`.

    Args:
        context: what is served now; null at the start and at the end.
        post: takes a `WakeAsked` when the tracker shall be polled.
        environment: where `$NAME` is looked up.
        now_ms: Unix time.
    """

    def __init__(
        self,
        context: Callable[[], RuntimeContext | None],
        post: Callable[[Event], None],
        *,
        environment: Mapping[str, str],
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._context = context
        self._environment = environment
        self._post = post
        self._now_ms = now_ms
        self._sleep = sleep
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._own: OrderedDict[str, None] = OrderedDict()
        self._waiting: list[Delivery] = []
        self._news = anyio.Event()
        self._told_ms: dict[str, int] = {}

    # --- asked by the web layer --------------------------------------------------------------------------

    def open(self) -> bool:
        """Whether webhooks are switched on."""
        return self._secret() is not None

    def admit(self, tracker: str, headers: Mapping[str, str]) -> WebhookAnswer | None:
        """Judge what stands before the body; null where the body is to be read.

        Raises:
            WebhookDeniedError: nothing of this tracker is taken, or there is no proof.
        """
        scheme, _ = self._scheme(tracker)
        if scheme.handshake_header is not None and (word := headers.get(scheme.handshake_header)):
            if not _HANDSHAKE.fullmatch(word):
                raise self._denied(WebhookRejectedError("webhook_body", "the handshake is malformed"))
            _log.info("webhook_handshake", tracker=tracker)
            return WebhookAnswer(status="handshake", code=200, headers={scheme.handshake_header: word})
        try:
            scheme.require_signature(headers)
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        return None

    def take(self, tracker: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take a delivery; what follows of it happens later. Raises `WebhookDeniedError`."""
        scheme, secret = self._scheme(tracker)
        try:
            delivery = scheme.verify(headers, body, secret=secret, now_ms=self._now_ms())
        except WebhookRejectedError as error:
            raise self._denied(error) from None
        if not self._is_new(delivery):
            _log.debug("webhook_repeated", tracker=tracker)
            return WebhookAnswer(status="duplicate")
        if not delivery.is_news(self._is_own):
            return WebhookAnswer(status="ignored")
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(delivery)
        self._news.set()
        _log.debug("webhook_accepted", tracker=tracker)
        return WebhookAnswer(status="accepted")

    def _scheme(self, tracker: str) -> tuple[WebhookScheme, str]:
        context, secret = self._context(), self._secret()
        if context is not None and secret is not None and context.settings.tracker.kind == tracker:
            scheme = tracker_kind(tracker).webhooks
            if scheme is not None:
                return scheme, secret
        raise WebhookDeniedError(404, "not_found", "there is no such route")

    def _secret(self) -> str | None:
        context = self._context()
        if context is None or tracker_kind(context.settings.tracker.kind).webhooks is None:
            return None
        found = resolve_secret(context.settings.tracker.webhook_secret, environment=self._environment)
        return None if found is None else found.reveal()

    def _is_new(self, delivery: Delivery) -> bool:
        if any(name in self._seen for name in delivery.keys):
            return False
        for name in delivery.keys:
            self._seen[name] = None
        while len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return True

    def _denied(self, error: WebhookRejectedError) -> WebhookDeniedError:
        """Log a rejected delivery, at most once a minute for each reason, and return what the API answers."""
        now_ms = self._now_ms()
        if now_ms - self._told_ms.get(error.code, -_TELL_EVERY_MS) >= _TELL_EVERY_MS:
            self._told_ms[error.code] = now_ms
            _log.warning("webhook_refused", code=error.code, reason=error.message)
        return WebhookDeniedError(_STATUS[error.code], error.code, error.message)

    # --- our own comments --------------------------------------------------------------------------------

    def wrote(self, comment_id: str) -> None:
        """The daemon wrote this comment: news of it are none."""
        self._own[comment_id.rpartition("/")[2]] = None
        while len(self._own) > MAX_OWN:
            self._own.popitem(last=False)

    def heard(self, known: Iterable[CommentRecord], remember: Remember) -> IssueComments:
        """The notes of the daemon, `known` those of a predecessor; each that it writes is known here."""
        kept = tuple(known)
        for record in kept:
            self.wrote(record.comment_id)

        def wrote(issue_id: str, kind: str, comment_id: str, fingerprint: str) -> None:
            self.wrote(comment_id)
            remember(issue_id, kind, comment_id, fingerprint)

        return IssueComments(kept, remember=wrote)

    def _is_own(self, comment_id: str) -> bool:
        return comment_id in self._own

    # --- waking ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Wake the poller for what comes in; ends by cancellation.

        News are judged again before: the id of a comment of ours may have become known meanwhile.
        """
        while True:
            await self._news.wait()
            await self._sleep(GATHER_S)
            waiting, self._waiting, self._news = self._waiting, [], anyio.Event()
            if any(delivery.is_news(self._is_own) for delivery in waiting):
                self._post(WakeAsked(reason="webhook"))
                await self._sleep(PAUSE_S)
