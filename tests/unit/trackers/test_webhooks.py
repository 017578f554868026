"""What each tracker sends: what proves it, what it is about, and what is no news."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from symphony.trackers.registry import tracker_kind
from symphony.trackers.webhooks import WebhookDelivery, WebhookRejectedError, WebhookScheme

SECRET = "correct-horse-battery"
KEY = b"0123456789abcdef0123456789abcdef"
STANDARD = "whsec_" + base64.b64encode(KEY).decode()
NOW_MS = 1_795_800_000_000
MARKED = f"<!-- symphony:skills v1 key={'a' * 32} fp={'b' * 32} -->\nBroken."

Sign = Callable[[bytes], dict[str, str]]


def _hex(body: bytes, key: str = SECRET) -> str:
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


def _standard(body: bytes, *, sent: int = NOW_MS // 1000, key: bytes = KEY) -> dict[str, str]:
    mac = base64.b64encode(hmac.new(key, f"msg_1.{sent}.".encode() + body, hashlib.sha256).digest()).decode()
    return {"webhook-id": "msg_1", "webhook-timestamp": str(sent), "webhook-signature": f"v1,AAAA v1,{mac}"}


def scheme_of(kind: str) -> WebhookScheme:
    scheme = tracker_kind(kind).webhooks
    assert scheme is not None
    return scheme


@dataclass(frozen=True, kw_only=True)
class Vendor:
    kind: str
    sign: Sign
    issue: Mapping[str, Any]
    comment: Mapping[str, Any]
    event: str | None = None
    secret: str = SECRET

    def send(self, content: Any, *, event: str = "", **headers: str) -> WebhookDelivery:
        body = json.dumps(content).encode()
        named = {self.event: event} if self.event else {}
        return self.take(body, {**self.sign(body), **named, **headers})

    def take(self, body: bytes, headers: Mapping[str, str]) -> WebhookDelivery:
        scheme = scheme_of(self.kind)
        scheme.require_signature(headers)
        return scheme.verify(headers, body, secret=self.secret, now_ms=NOW_MS)


def _said(body: str) -> dict[str, Any]:
    return {"id": 77, "body": body}


def _linear(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "action": "create", "data": data, "webhookTimestamp": NOW_MS - 1_000}


VENDORS = {
    "linear": Vendor(
        kind="linear",
        sign=lambda body: {"linear-signature": _hex(body), "linear-delivery": "d-1"},
        issue=_linear("Issue", id="i-1"),
        comment=_linear("Comment", id="77", body="Please."),
    ),
    "github": Vendor(
        kind="github",
        sign=lambda body: {"x-hub-signature-256": f"sha256={_hex(body)}", "x-github-delivery": "d-1"},
        event="x-github-event",
        issue={"action": "labeled", "issue": {"number": 7}},
        comment={"action": "created", "issue": {"number": 7}, "comment": _said("Please.")},
    ),
    "gitlab": Vendor(
        kind="gitlab",
        sign=lambda _: {"x-gitlab-token": SECRET, "idempotency-key": "d-1"},
        issue={"object_kind": "issue", "object_attributes": {"iid": 7}},
        comment={"object_kind": "note", "object_attributes": {"id": 77, "note": "Please."}},
    ),
    "gitlab, signed": Vendor(
        kind="gitlab",
        sign=_standard,
        secret=STANDARD,
        issue={"object_kind": "issue", "object_attributes": {"iid": 7}},
        comment={"object_kind": "note", "object_attributes": {"id": 77, "note": "Please."}},
    ),
    "jira": Vendor(
        kind="jira",
        sign=lambda body: {
            "x-hub-signature": f"sha256={_hex(body)}",
            "x-atlassian-webhook-identifier": "d-1",
        },
        issue={"webhookEvent": "jira:issue_updated", "changelog": {"items": [{}]}, "comment": _said("x")},
        comment={"webhookEvent": "comment_created", "comment": _said("Please.")},
    ),
    "asana": Vendor(
        kind="asana",
        sign=lambda body: {"x-hook-signature": _hex(body)},
        issue={"events": [{"action": "changed", "resource": {"gid": "7", "resource_type": "task"}}]},
        comment={"events": [{"action": "added", "resource": {"gid": "77", "resource_type": "story"}}]},
    ),
    "forgejo": Vendor(
        kind="forgejo",
        sign=lambda body: {
            "x-forgejo-signature": _hex(body),
            "x-gitea-signature": _hex(body),
            "x-forgejo-delivery": "d-1",
        },
        event="x-forgejo-event",
        issue={"action": "opened", "issue": {"number": 7}},
        comment={"action": "created", "comment": _said("Please.")},
    ),
    "gitea": Vendor(
        kind="gitea",
        sign=lambda body: {"x-gitea-signature": _hex(body), "x-gitea-delivery": "d-1"},
        event="x-gitea-event",
        issue={"action": "opened", "issue": {"number": 7}},
        comment={"action": "created", "comment": _said("Please.")},
    ),
}
every_vendor = pytest.mark.parametrize("vendor", VENDORS.values(), ids=VENDORS)


def nobody(_: str) -> bool:
    return False


def _spoiled(headers: Mapping[str, str], **changes: str) -> dict[str, str]:
    return {**headers, **changes}


@every_vendor
def test_a_change_of_an_issue_is_news(vendor: Vendor) -> None:
    assert vendor.send(vendor.issue, event="issues").is_news(nobody)


@every_vendor
def test_a_comment_is_news_unless_it_is_ours(vendor: Vendor) -> None:
    delivery = vendor.send(vendor.comment, event="issue_comment")
    assert [said.id for said in delivery.comments] == ["77"]
    assert delivery.is_news(nobody)
    assert not delivery.is_news(lambda comment_id: comment_id == "77")


@pytest.mark.parametrize("name", ["linear", "github", "gitlab", "jira", "forgejo"])
def test_a_comment_with_our_marker_is_none(name: str) -> None:
    vendor = VENDORS[name]
    content = json.loads(json.dumps(vendor.comment).replace('"Please."', json.dumps(MARKED)))
    assert not vendor.send(content, event="issue_comment").is_news(nobody)


@every_vendor
def test_nothing_is_taken_without_its_proof(vendor: Vendor) -> None:
    body = json.dumps(vendor.issue).encode()
    with pytest.raises(WebhookRejectedError) as caught:
        vendor.take(body, {"x-other": "1"})
    assert caught.value.code == "webhook_unsigned"
    headers = vendor.sign(body)
    proof, *others = (name for name in scheme_of(vendor.kind).signature_headers if name in headers)
    headers = {name: value for name, value in headers.items() if name not in others}
    for wrong in ("", "0" * 64, "sha256=", "v1,", "é", headers[proof][:-1] + "é"):
        with pytest.raises(WebhookRejectedError) as caught:
            vendor.take(body, _spoiled(headers, **{proof: wrong}))
        assert caught.value.code in {"webhook_signature", "webhook_unsigned"}
        assert vendor.secret not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in VENDORS if name != "gitlab"])
def test_a_changed_body_is_not_the_one_that_was_signed(name: str) -> None:
    vendor = VENDORS[name]
    body = json.dumps(vendor.issue).encode()
    with pytest.raises(WebhookRejectedError) as caught:
        vendor.take(body + b" ", vendor.sign(body))
    assert caught.value.code == "webhook_signature"


def test_each_signature_that_is_there_must_be_right() -> None:
    vendor = VENDORS["forgejo"]
    body = json.dumps(vendor.issue).encode()
    with pytest.raises(WebhookRejectedError):
        vendor.take(body, _spoiled(vendor.sign(body), **{"x-gitea-signature": "0" * 64}))


@pytest.mark.parametrize("sent", [NOW_MS - 61_000, NOW_MS + 61_000, None, "soon"])
def test_linear_s_deliveries_are_of_the_last_minute(sent: object) -> None:
    with pytest.raises(WebhookRejectedError) as caught:
        VENDORS["linear"].send({**_linear("Issue"), "webhookTimestamp": sent})
    assert caught.value.code == "webhook_stale"


@pytest.mark.parametrize("sent", [NOW_MS // 1000 - 301, NOW_MS // 1000 + 301])
def test_signed_deliveries_of_gitlab_are_of_the_last_five_minutes(sent: int) -> None:
    vendor, body = VENDORS["gitlab, signed"], b"{}"
    with pytest.raises(WebhookRejectedError) as caught:
        vendor.take(body, _standard(body, sent=sent))
    assert caught.value.code == "webhook_stale"


def test_a_time_that_is_none_is_not_believed() -> None:
    body = b"{}"
    mac = base64.b64encode(hmac.new(KEY, b"m.x." + body, hashlib.sha256).digest()).decode()
    headers = {"webhook-id": "m", "webhook-timestamp": "x", "webhook-signature": f"v1,{mac}"}
    with pytest.raises(WebhookRejectedError) as caught:
        VENDORS["gitlab, signed"].take(body, headers)
    assert caught.value.code == "webhook_stale"


def test_a_signing_key_that_is_none_takes_nothing() -> None:
    headers = {**_standard(b"{}"), "x-gitlab-token": "whsec_?"}
    with pytest.raises(WebhookRejectedError) as caught:
        scheme_of("gitlab").verify(headers, b"{}", secret="whsec_?", now_ms=NOW_MS)
    assert caught.value.code == "webhook_signature"


def test_a_signing_key_takes_no_plain_token() -> None:
    with pytest.raises(WebhookRejectedError):
        VENDORS["gitlab, signed"].take(b"{}", {"x-gitlab-token": STANDARD})


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"payload=%7B%7D", b"[" * 100_000, b"\xff"])
def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    vendor = VENDORS["github"]
    with pytest.raises(WebhookRejectedError) as caught:
        vendor.take(body, vendor.sign(body))
    assert caught.value.code == "webhook_body"


def test_a_delivery_has_the_names_by_which_it_is_known_again() -> None:
    first = VENDORS["github"].send({"a": 1})
    again = VENDORS["github"].send({"a": 1}, **{"x-github-delivery": "another"})
    other = VENDORS["github"].send({"a": 2})
    assert first.keys[1] == "id d-1"
    assert first.keys[0] == again.keys[0], "the id is not signed, so the body counts too"
    assert first.keys[0] != other.keys[0]


def test_pings_and_heartbeats_are_no_news() -> None:
    assert not VENDORS["github"].send({"zen": "Be brief."}, event="ping").is_news(nobody)
    assert not VENDORS["asana"].send({"events": []}).is_news(nobody)


@every_vendor
@pytest.mark.parametrize("value", [None, 1, [], "x", {"id": []}])
def test_odd_content_harms_nobody(vendor: Vendor, value: object) -> None:
    for key in (*vendor.issue, *vendor.comment):
        content = {**vendor.comment, key: value, "webhookTimestamp": NOW_MS}
        for event in ("issues", "issue_comment"):
            vendor.send(content, event=event).is_news(nobody)


def test_one_of_several_events_that_is_no_comment_is_news() -> None:
    asana = VENDORS["asana"]
    both = {"events": [*asana.issue["events"], *asana.comment["events"]]}
    assert asana.send(both).is_news(lambda _: True)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_MTIzNDU2Nzg5MDEyMzQ1"])
def test_a_signing_key_that_can_be_guessed_lets_nothing_in(secret: str) -> None:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    sent = str(NOW_MS // 1000)
    mac = hmac.new(key, f"d-1.{sent}.".encode() + b"{}", hashlib.sha256).digest()
    headers = {
        "webhook-id": "d-1",
        "webhook-timestamp": sent,
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }
    with pytest.raises(WebhookRejectedError):
        scheme_of("gitlab").verify(headers, b"{}", secret=secret, now_ms=NOW_MS)
