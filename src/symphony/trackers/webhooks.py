"""What trackers send when something changed, and how each signs it. Pure; nothing here acts on content.

A delivery is proved by its signature over the raw body, told from an earlier one by its id and its body, and
read only as far as it takes to see whether it is news: a comment of our own, a ping and a heartbeat are not.
What it says of an issue is never used: the poll that it wakes asks the tracker.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from symphony.domain import DECODE_ERRORS
from symphony.trackers.comments import is_marked
from symphony.trackers.fields import items, mapping, text, whole

Headers = Mapping[str, str]
"""Names in lower case."""

SHORT_MS = 60_000
LONG_MS = 300_000
_STANDARD_KEY = "whsec_"


class WebhookRejectedError(Exception):
    """A delivery that is not taken; `code` is stable, the text is for people and repeats nothing of it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentRef:
    """A comment that a delivery is about: its id, and its text where the delivery holds it."""

    id: str
    body: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery whose signature is right.

    Attributes:
        keys: by which the same delivery is known when it comes again; any of them is enough.
        comments: the comments that it is about.
        more: whether it is about anything besides comments.
    """

    keys: tuple[str, ...]
    comments: tuple[CommentRef, ...] = ()
    more: bool = False

    def is_news(self, ours: Callable[[str], bool]) -> bool:
        """Whether somebody else did something; `ours` knows the ids of the daemon's own comments."""
        return self.more or any(
            not ours(said.id) and not is_marked(said.body or "") for said in self.comments
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookScheme:
    """How one service sends.

    Attributes:
        proofs: headers of which one must be there, or the body is not even read.
        prove: raises `WebhookRejectedError` unless the service sent the delivery; takes headers, raw body,
            its decoded JSON, the secret, and Unix time in ms.
        delivery: the header that names a delivery.
        read: comments, and whether there is more, of the decoded body and the headers.
        handshake_header: a header by which the service asks to be answered with the same header, once.
    """

    proofs: tuple[str, ...]
    prove: Callable[[Headers, bytes, Any, str, int], None]
    delivery: tuple[str, ...]
    read: Callable[[Headers, Any], tuple[tuple[CommentRef, ...], bool]]
    handshake_header: str | None = None

    def require_signature(self, headers: Headers) -> None:
        """Raise `WebhookRejectedError` for a delivery that shows no proof at all."""
        if not any(headers.get(name) for name in self.proofs):
            raise WebhookRejectedError("webhook_unsigned", "the delivery carries no signature")

    def verify(self, headers: Headers, body: bytes, *, secret: str, now_ms: int) -> Delivery:
        """Prove and read a delivery. Raises `WebhookRejectedError`."""
        try:
            decoded = msgspec.json.decode(body)
        except DECODE_ERRORS:
            decoded = None
        self.prove(headers, body, decoded, secret, now_ms)
        if not isinstance(decoded, dict):
            raise WebhookRejectedError("webhook_body", "the body is no JSON object; let it be sent as JSON")
        comments, more = self.read(headers, decoded)
        ids = (headers.get(name, "")[:200] for name in self.delivery)
        digest = hashlib.sha256(body).hexdigest()
        return Delivery(
            keys=(f"body {digest}", *(f"id {name}" for name in ids if name)), comments=comments, more=more
        )


# --- proofs ----------------------------------------------------------------------------------------------


def _hexed(headers: Headers, names: Iterable[str], body: bytes, secret: str, *, prefix: str = "") -> None:
    """Every signature that is there must be the hex HMAC-SHA256 of the raw body."""
    wanted = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = [headers[name].strip() for name in names if headers.get(name)]
    if not given or not all(_same(value.removeprefix(prefix).lower(), wanted) for value in given):
        raise _forged()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _forged() -> WebhookRejectedError:
    return WebhookRejectedError("webhook_signature", "the signature is not that of tracker.webhook_secret")


def _fresh(sent_ms: int | None, now_ms: int, limit_ms: int) -> None:
    if sent_ms is None or abs(now_ms - sent_ms) > limit_ms:
        message = f"the delivery was not sent within the last {limit_ms // 1000} s; is the clock right?"
        raise WebhookRejectedError("webhook_stale", message)


def _prove_linear(headers: Headers, body: bytes, decoded: Any, secret: str, now_ms: int) -> None:
    _hexed(headers, ("linear-signature",), body, secret)
    _fresh(whole(mapping(decoded).get("webhookTimestamp")), now_ms, SHORT_MS)


def _prove_github(headers: Headers, body: bytes, _: Any, secret: str, __: int) -> None:
    _hexed(headers, ("x-hub-signature-256",), body, secret, prefix="sha256=")


def _prove_gitlab(headers: Headers, body: bytes, _: Any, secret: str, now_ms: int) -> None:
    """A signing key (`whsec_`) by Standard Webhooks; any other secret is sent as it is."""
    if not secret.startswith(_STANDARD_KEY):
        if not _same(headers.get("x-gitlab-token", ""), secret):
            raise _forged()
        return
    try:
        key = base64.b64decode(secret.removeprefix(_STANDARD_KEY), validate=True)
    except binascii.Error:
        raise _forged() from None
    name, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    mac = hmac.new(key, f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(mac).decode()
    if not any(_same(given, wanted) for given in headers.get("webhook-signature", "").split()):
        raise _forged()
    _fresh(int(sent) * 1000 if sent.isascii() and sent.isdigit() else None, now_ms, LONG_MS)


def _prove_jira(headers: Headers, body: bytes, _: Any, secret: str, __: int) -> None:
    _hexed(headers, ("x-hub-signature",), body, secret, prefix="sha256=")


def _prove_asana(headers: Headers, body: bytes, _: Any, secret: str, __: int) -> None:
    _hexed(headers, ("x-hook-signature",), body, secret)


_FORGES = ("x-forgejo-signature", "x-gitea-signature")


def _prove_forgejo(headers: Headers, body: bytes, _: Any, secret: str, __: int) -> None:
    _hexed(headers, _FORGES, body, secret)


# --- what it is about ------------------------------------------------------------------------------------


def _comment(record: Any, key: str) -> CommentRef:
    value = mapping(record)
    return CommentRef(id=str(value.get("id", "")), body=text(value.get(key)))


def _read_linear(_: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    if body.get("type") == "Comment":
        return (_comment(body.get("data"), "body"),), False
    return (), True


def _read_github(headers: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    match headers.get("x-github-event"):
        case "issue_comment":
            return (_comment(body.get("comment"), "body"),), False
        case event:
            return (), event != "ping"


def _read_gitlab(_: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    if body.get("object_kind") == "note":
        return (_comment(body.get("object_attributes"), "note"),), False
    return (), True


def _read_jira(_: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    """A comment comes as an event of its own, and as an update of its issue that changes nothing else."""
    if "comment" in body and not body.get("changelog"):
        return (_comment(body["comment"], "body"),), False
    return (), True


def _read_asana(_: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    """Many events at once, or none: a heartbeat."""
    resources = [mapping(mapping(event).get("resource")) for event in items(body.get("events"))]
    stories = [one for one in resources if one.get("resource_type") == "story"]
    return tuple(CommentRef(id=str(one.get("gid", ""))) for one in stories), len(stories) < len(resources)


def _read_forgejo(headers: Headers, body: Any) -> tuple[tuple[CommentRef, ...], bool]:
    if (headers.get("x-forgejo-event") or headers.get("x-gitea-event")) == "issue_comment":
        return (_comment(body.get("comment"), "body"),), False
    return (), True


# --- what each service does; a kind of tracker names its own ---------------------------------------------

LINEAR = WebhookScheme(
    proofs=("linear-signature",), prove=_prove_linear, delivery=("linear-delivery",), read=_read_linear
)
GITHUB = WebhookScheme(
    proofs=("x-hub-signature-256",), prove=_prove_github, delivery=("x-github-delivery",), read=_read_github
)
GITLAB = WebhookScheme(
    proofs=("x-gitlab-token", "webhook-signature"),
    prove=_prove_gitlab,
    delivery=("webhook-id", "idempotency-key"),
    read=_read_gitlab,
)
JIRA = WebhookScheme(
    proofs=("x-hub-signature",),
    prove=_prove_jira,
    delivery=("x-atlassian-webhook-identifier",),
    read=_read_jira,
)
ASANA = WebhookScheme(
    proofs=("x-hook-signature",),
    prove=_prove_asana,
    delivery=(),
    read=_read_asana,
    handshake_header="x-hook-secret",
)
FORGEJO = WebhookScheme(
    proofs=_FORGES,
    prove=_prove_forgejo,
    delivery=("x-forgejo-delivery", "x-gitea-delivery"),
    read=_read_forgejo,
)
