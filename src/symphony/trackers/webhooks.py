"""Webhook deliveries of each service: how to verify them, and what they are about. Pure.

A delivery is verified by its signature over the raw body. A repeated delivery is recognised by its id and its
body. The content only decides whether the delivery is news: the daemon's own comments, pings and heartbeats
are not. Its data about an issue or a pull request are never used: the delivery only causes a poll of the
service.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from symphony.config import signing_key
from symphony.domain import DECODE_ERRORS
from symphony.http.fields import dig, items, text, whole
from symphony.trackers.comments import is_marked

Headers = Mapping[str, str]
"""With lower-case names."""

_LINEAR_MAX_AGE_MS = 60_000
_GITLAB_MAX_AGE_MS = 300_000
_GITLAB_KEY_PREFIX = "whsec_"


class WebhookRejectedError(Exception):
    """A rejected delivery; `code` is stable, and `message` contains no part of the delivery."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class CommentRef(Struct, frozen=True, kw_only=True):
    """A comment that a delivery is about: its id, and its text if the delivery has it."""

    id: str
    body: str | None = None


class WebhookDelivery(Struct, frozen=True, kw_only=True):
    """A verified delivery.

    Attributes:
        keys: a delivery with one of the same keys is a repetition.
        comments: the comments that it is about.
        more: whether it is about anything besides comments.
    """

    keys: tuple[str, ...]
    comments: tuple[CommentRef, ...] = ()
    more: bool = False

    def is_news(self, is_own_comment: Callable[[str], bool]) -> bool:
        """Whether it is about more than the daemon's comments; `is_own_comment` recognises these by id."""
        return self.more or any(
            not is_own_comment(comment.id) and not is_marked(comment.body or "") for comment in self.comments
        )


class Received(Struct, frozen=True, kw_only=True):
    """A received request: `document` is the JSON body, `None` if it is not JSON; `now_ms` is Unix time."""

    headers: Headers
    body: bytes
    document: Any
    now_ms: int


About = tuple[tuple[CommentRef, ...], bool]
"""The comments that a delivery is about, and whether it is about anything else."""


class WebhookScheme(Struct, frozen=True, kw_only=True):
    """How a service sends webhooks.

    Attributes:
        signature_headers: the body is not even read if all of them are missing.
        verify_signature: raises `WebhookRejectedError` unless the holder of the secret sent the delivery.
        about: determines what the delivery is about.
        id_headers: headers with an id of the delivery.
        handshake_header: a header that the service wants back once to confirm the address.
    """

    signature_headers: tuple[str, ...]
    verify_signature: Callable[[Received, str], None]
    about: Callable[[Received], About]
    id_headers: tuple[str, ...] = ()
    handshake_header: str | None = None

    def require_signature(self, headers: Headers) -> None:
        """Raise `WebhookRejectedError` for a delivery without any signature."""
        if not any(headers.get(name) for name in self.signature_headers):
            raise WebhookRejectedError("webhook_unsigned", "the delivery carries no signature")

    def verify(self, headers: Headers, body: bytes, *, secret: str, now_ms: int) -> WebhookDelivery:
        """Verify and read a delivery. Raises `WebhookRejectedError`."""
        try:
            document = msgspec.json.decode(body)
        except DECODE_ERRORS:
            document = None
        received = Received(headers=headers, body=body, document=document, now_ms=now_ms)
        self.verify_signature(received, secret)
        if not isinstance(document, dict):
            raise WebhookRejectedError(
                "webhook_body", "the body is no JSON object; let the service send JSON"
            )
        comments, more = self.about(received)
        ids = [headers[name][:200] for name in self.id_headers if headers.get(name)]
        keys = (f"body {hashlib.sha256(body).hexdigest()}", *(f"id {name}" for name in ids))
        return WebhookDelivery(keys=keys, comments=comments, more=more)


# --- signatures ------------------------------------------------------------------------------------------


def _hex_hmac(*names: str, prefix: str = "") -> Callable[[Received, str], None]:
    """Verify that each present header of these is the hex HMAC-SHA256 of the raw body."""

    def verify(received: Received, secret: str) -> None:
        expected = hmac.new(secret.encode(), received.body, hashlib.sha256).hexdigest()
        given = [received.headers[name].strip() for name in names if received.headers.get(name)]
        if not given or not all(_equal(value.removeprefix(prefix).lower(), expected) for value in given):
            raise _forged()

    return verify


def _verify_linear(received: Received, secret: str) -> None:
    _hex_hmac("linear-signature")(received, secret)
    _require_recent(received, whole(dig(received.document, "webhookTimestamp")), _LINEAR_MAX_AGE_MS)


def _verify_gitlab(received: Received, secret: str) -> None:
    """Verify by a signing key (`whsec_...`) as in Standard Webhooks, or by a plain-text secret."""
    headers = received.headers
    if not secret.startswith(_GITLAB_KEY_PREFIX):
        if not _equal(headers.get("x-gitlab-token", ""), secret):
            raise _forged()
        return
    try:
        key = signing_key(secret)
    except ValueError:
        raise _forged() from None
    name, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    mac = hmac.new(key, f"{name}.{sent}.".encode() + received.body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(mac).decode()
    if not any(_equal(given, expected) for given in headers.get("webhook-signature", "").split()):
        raise _forged()
    sent_ms = int(sent) * 1000 if sent.isascii() and sent.isdigit() else None
    _require_recent(received, sent_ms, _GITLAB_MAX_AGE_MS)


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _forged() -> WebhookRejectedError:
    return WebhookRejectedError("webhook_signature", "the signature is not that of webhook_secret")


def _require_recent(received: Received, sent_ms: int | None, max_age_ms: int) -> None:
    if sent_ms is None or abs(received.now_ms - sent_ms) > max_age_ms:
        message = f"the delivery was not sent within the last {max_age_ms // 1000} s; is the clock right?"
        raise WebhookRejectedError("webhook_stale", message)


# --- what a delivery is about ----------------------------------------------------------------------------


def _comment(record: Any, body_key: str = "body") -> About:
    return (CommentRef(id=str(dig(record, "id") or ""), body=text(dig(record, body_key))),), False


def _about_linear(received: Received) -> About:
    if received.document.get("type") == "Comment":
        return _comment(received.document.get("data"))
    return (), True


def _about_github(received: Received) -> About:
    event = received.headers.get("x-github-event")
    if event in {"issue_comment", "pull_request_review_comment"}:
        return _comment(received.document.get("comment"))
    return (), event != "ping"


def _about_gitlab(received: Received) -> About:
    if received.document.get("object_kind") == "note":
        return _comment(received.document.get("object_attributes"), "note")
    return (), True


def _about_jira(received: Received) -> About:
    """Jira sends a comment as its own event, and as an update of its issue that changes nothing else."""
    if "comment" in received.document and not received.document.get("changelog"):
        return _comment(received.document["comment"])
    return (), True


def _about_asana(received: Received) -> About:
    """Asana sends several events at once, none in a heartbeat. They contain no texts."""
    resources = [dig(event, "resource") for event in items(received.document.get("events"))]
    stories = [each for each in resources if dig(each, "resource_type") == "story"]
    comments = tuple(CommentRef(id=str(dig(story, "gid") or "")) for story in stories)
    return comments, len(stories) < len(resources)


def _about_forgejo(received: Received) -> About:
    headers = received.headers
    if (headers.get("x-forgejo-event") or headers.get("x-gitea-event")) == "issue_comment":
        return _comment(received.document.get("comment"))
    return (), True


# --- schemes ---------------------------------------------------------------------------------------------

LINEAR = WebhookScheme(
    signature_headers=("linear-signature",),
    verify_signature=_verify_linear,
    about=_about_linear,
    id_headers=("linear-delivery",),
)
GITHUB = WebhookScheme(
    signature_headers=("x-hub-signature-256",),
    verify_signature=_hex_hmac("x-hub-signature-256", prefix="sha256="),
    about=_about_github,
    id_headers=("x-github-delivery",),
)
GITLAB = WebhookScheme(
    signature_headers=("x-gitlab-token", "webhook-signature"),
    verify_signature=_verify_gitlab,
    about=_about_gitlab,
    id_headers=("webhook-id", "idempotency-key"),
)
JIRA = WebhookScheme(
    signature_headers=("x-hub-signature",),
    verify_signature=_hex_hmac("x-hub-signature", prefix="sha256="),
    about=_about_jira,
    id_headers=("x-atlassian-webhook-identifier",),
)
ASANA = WebhookScheme(
    signature_headers=("x-hook-signature",),
    verify_signature=_hex_hmac("x-hook-signature"),
    about=_about_asana,
    handshake_header="x-hook-secret",
)
FORGEJO = WebhookScheme(
    signature_headers=("x-forgejo-signature", "x-gitea-signature"),
    verify_signature=_hex_hmac("x-forgejo-signature", "x-gitea-signature"),
    about=_about_forgejo,
    id_headers=("x-forgejo-delivery", "x-gitea-delivery"),
)
