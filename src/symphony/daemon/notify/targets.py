"""Delivers notifications to one target: a Slack webhook, a signed webhook, or a command.

Text of agents and trackers stays text: Slack gets it in blocks of plain text, where nothing is a link, a
mention or markup, and in JSON it is a value. A link leads to an http(s) address, or is left out.
"""

import base64
import hmac
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from symphony.agents.environment import child_environment
from symphony.api import models
from symphony.config import NotifySettings, reference_name, resolve_secret, signing_key
from symphony.daemon.notify.notifications import Notification, Subject, describe, headline
from symphony.domain import Blame, Category, Failure, Redaction, SymphonyError, one_line
from symphony.http import ExchangeError, HttpxTransport
from symphony.processes.base import Host

MAX_RETRY_AFTER_S: Final = 3_600.0
_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_MAX_ANSWER_BYTES: Final = 64 * 1024
_MAX_OUTPUT_BYTES: Final = 16 * 1024
_MAX_SHOWN_CHARS: Final = 200
_MAX_LISTED: Final = 20  # Slack accepts 50 blocks
_MAX_HEADER: Final = 150
_LINK: Final = re.compile(r"https?://[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+", re.ASCII)
_NO_ADDRESS: Final = "must be an http or https address with a host"


class TargetError(Exception):
    """A target cannot be used.

    Attributes:
        key: the key of the target that is wrong.
        problem: a phrase that follows the name of the key, without the value.
        hint: what to do.
    """

    def __init__(self, key: str, problem: str, hint: str) -> None:
        super().__init__(f"{key} {problem}")
        self.key = key
        self.problem = problem
        self.hint = hint


class DeliveryError(SymphonyError):
    """A target did not accept a batch; the message says why, without address and secrets."""

    def __init__(self, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(
            Failure(
                category=Category.NOTIFICATION,
                blame=Blame.HOST,
                message=reason,
                retry_after_ms=round(retry_after_s * 1000) or None,
            )
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A target with its values. `url` and `secret` are secrets; `program` is the path of the command."""

    settings: NotifySettings
    url: str = field(default="", repr=False)
    secret: bytes | None = field(default=None, repr=False)
    program: str = ""


def resolve_target(settings: NotifySettings, environment: Mapping[str, str]) -> Target:
    """Look up what a target refers to; reads the environment and PATH.

    Raises:
        TargetError: something that its kind needs is missing or wrong.
    """
    if settings.kind == "command":
        if not settings.command:
            raise TargetError("command", "is required", "name a program and its arguments: [mail, me]")
        program = shutil.which(settings.command[0], path=environment.get("PATH", os.defpath))
        if program is None:
            problem = "names a program that does not exist here, or cannot be run"
            raise TargetError("command", problem, "give its full path, or install it")
        return Target(settings, program=program)
    url = _value(settings, "url", settings.url, environment)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise TargetError("url", _NO_ADDRESS, "write https://…, or the name of a variable with it")
    if settings.secret is None:
        return Target(settings, url=url)
    try:
        key = signing_key(_value(settings, "secret", settings.secret, environment))
    except ValueError as error:
        hint = "copy all of it, or make a longer one: openssl rand -hex 32"
        raise TargetError("secret", str(error), hint) from None
    return Target(settings, url=url, secret=key)


def _value(settings: NotifySettings, key: str, value: str | None, environment: Mapping[str, str]) -> str:
    if value is None:
        raise TargetError(key, "is required", f"a target of kind {settings.kind} needs it")
    found = resolve_secret(value, environment=environment)
    if found is None:
        name = reference_name(value)
        if name is None:
            raise TargetError(key, "holds no secret", "write $NAME there, and set the variable")
        raise TargetError(key, f"refers to ${name}, which is not set", f"set {name} where the daemon starts")
    return found.reveal()


# --- the message ----------------------------------------------------------------------------------------


def document(
    target: Target, batch: Sequence[Notification], *, dropped: int, now_ms: int
) -> models.Notifications:
    """The batch as the document that webhooks and commands get; `now_ms` is Unix time."""
    ids = "\n".join([target.settings.name, *(each.id for each in batch)])
    return models.Notifications(
        id=f"msg_{sha256(ids.encode()).hexdigest()[:32]}",
        sent_at=models.wall_text(now_ms),
        target=target.settings.name,
        text=headline(batch),
        notifications=tuple(
            models.Notification.of(
                each,
                at=models.wall_text(each.at_wall_ms),
                issue=None
                if each.issue is None
                else models.NotifiedIssue(
                    issue_id=each.issue.issue_id,
                    issue_identifier=each.issue.identifier,
                    issue_url=link(each.issue.url),
                    page_url=page_of(target.settings, each.issue),
                    title=each.issue.title,
                    state=each.issue.state,
                ),
            )
            for each in batch
        ),
        dropped=dropped,
    )


def link(address: str | None) -> str | None:
    """The address if it is an http(s) address in plain ASCII, which all clients read alike."""
    return address if address is not None and _LINK.fullmatch(address) else None


def page_of(settings: NotifySettings, issue: Subject) -> str | None:
    """The address of the issue's page; `None` without `page_url`."""
    base = link(settings.page_url)
    return None if base is None else f"{base.rstrip('/')}/issues/{quote(issue.identifier, safe='')}"


def signed(target: Target, body: bytes, *, message_id: str, now_ms: int) -> Mapping[str, str]:
    """The headers of a webhook, with the signature of Standard Webhooks if the target has a secret."""
    seconds = str(now_ms // 1000)
    headers = {
        "content-type": "application/json",
        "user-agent": "symphony-orchestrator",
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
    }
    if target.secret is not None:
        mac = hmac.new(target.secret, f"{message_id}.{seconds}.".encode() + body, "sha256").digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(mac).decode()}"
    return headers


def slack_message(target: Target, batch: Sequence[Notification], *, dropped: int) -> dict[str, Any]:
    """The body for an incoming webhook of Slack.

    `text` is for clients that show no blocks; it contains no text of others.
    """
    left_out = max(len(batch) - _MAX_LISTED, 0) + dropped
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(one_line(headline(batch), _MAX_HEADER))}
    ]
    for each in batch[:_MAX_LISTED]:
        blocks.append({"type": "section", "text": _plain(describe(each))})
        if each.issue is None:
            continue
        links = {"Issue": link(each.issue.url), "Page": page_of(target.settings, each.issue)}
        text = " · ".join(
            f"<{address.replace('&', '&amp;')}|{name}>" for name, address in links.items() if address
        )
        if text:
            blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": text}]})
    if left_out:
        blocks.append({"type": "section", "text": _plain(f"and {left_out} more")})
    return {"text": headline(batch), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


# --- delivery --------------------------------------------------------------------------------------------


class Deliverer:
    """Sends batches.

    Args:
        host: the host of commands.
        environment: variables of the daemon.
        directory: the working directory of commands: that of the workflow file.
    """

    def __init__(self, host: Host, environment: Mapping[str, str], directory: Path) -> None:
        self._host = host
        self._environment = environment
        self._directory = directory

    async def deliver(
        self,
        target: Target,
        batch: Sequence[Notification],
        *,
        dropped: int,
        now_ms: int,
        secret_names: frozenset[str],
        redaction: Redaction,
    ) -> None:
        """Send a batch once.

        Raises:
            DeliveryError: the target refused it, or its answer was lost.
        """
        if target.settings.kind == "slack":
            body = msgspec.json.encode(slack_message(target, batch, dropped=dropped))
            await _post(target, body, {"content-type": "application/json"})
            return
        message = document(target, batch, dropped=dropped, now_ms=now_ms)
        body = msgspec.json.encode(message)
        if target.settings.kind == "webhook":
            await _post(target, body, signed(target, body, message_id=message.id, now_ms=now_ms))
        else:
            await self._run(target, body, secret_names, redaction)

    async def _run(
        self, target: Target, body: bytes, secret_names: frozenset[str], redaction: Redaction
    ) -> None:
        env = child_environment(self._environment, run_id="notify", secret_names=secret_names)
        try:
            done = await self._host.run(
                [target.program, *target.settings.command[1:]],
                cwd=self._directory,
                env=env,
                timeout_ms=target.settings.timeout_ms,
                stdin=body,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        except OSError as error:
            raise DeliveryError(f"the command could not be started: {error.strerror or error}") from error
        if done.timed_out:
            raise DeliveryError(f"the command did not end within {target.settings.timeout_ms} ms")
        if done.exit_code != 0:
            output = redaction.line((done.stderr or done.stdout).decode("utf-8", "replace"), _MAX_SHOWN_CHARS)
            raise DeliveryError(f"the command ended with status {done.exit_code}{output and f': {output}'}")


async def _post(target: Target, body: bytes, headers: Mapping[str, str]) -> None:
    limit_s = target.settings.timeout_ms / 1000
    transport = HttpxTransport(
        connect_s=limit_s, read_s=limit_s, total_s=limit_s, max_bytes=_MAX_ANSWER_BYTES
    )
    try:
        async with transport.session(target.url) as send:
            reply = await send("POST", target.url, headers, body)
    except ExchangeError as error:
        raise DeliveryError(f"it did not answer: {error}") from error
    if reply.status in _OK:
        return
    reason = f"it answered with status {reply.status}"
    if reply.status in _REDIRECTS:
        reason = f"{reason}, a redirect, which is not followed"
    raise DeliveryError(one_line(reason), retry_after_s=_retry_after_s(reply.headers.get("retry-after", "")))


def _retry_after_s(text: str) -> float:
    """The wait in seconds that the target asks for, limited; a date or anything else counts as none."""
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdecimal() else 0.0
