"""GitHub's REST API by npm's `emulate`, with a gate in front that lets valid requests through and no others.

The gate is a `Vendor`: `contract.served` puts it on the loopback interface. What the emulator answers is held
against the same description; where it is known to differ, `LOOSE` says so.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from typing_extensions import override

from contract.openapi import openapi
from contract.schemas import SCHEMAS
from contract.vendor import Asked, Clock, Given, Vendor
from harness.project import until

__all__ = ["LOOSE", "OWNER", "REPO", "SECRET", "EmulatedGithub", "emulated_github"]

SECRET, THEIRS = "ghp_0123456789abcdefghijklmnop", "ghp_zyxwvutsrqponmlkjihgfedcba"
OWNER, REPO = "octo-team", "website"
ME, SOMEBODY = "symphony-bot", "ann"
LOOSE: Mapping[str, Any] = {"state_reason": None}
"""Fields of answers that are not by the letter of the description: it lists their words, and null is none."""

_LOOPBACK = """\
// The emulator listens on all interfaces and cannot be told otherwise.
const fs = require("node:fs");
const net = require("node:net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function () {
  this.once("listening", () => {
    const file = process.env.BOUND_TO;
    fs.writeFileSync(file + ".new", JSON.stringify(this.address()));
    fs.renameSync(file + ".new", file);
  });
  return listen.call(this, { port: 0, host: "127.0.0.1" });
};
"""
_PASSED_ON = (
    "authorization",
    "accept",
    "user-agent",
    "x-github-api-version",
    "if-none-match",
    "content-type",
)
_GIVEN_BACK = ("etag", "link", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
_SCOPES = ["repo", "user"]


class EmulatedGithub(Vendor):
    """The gate, and hands of a person behind it."""

    base = "https://github.example.test"
    secret = SECRET

    def __init__(self, emulator: str) -> None:
        super().__init__(Clock())
        self._emulator = emulator
        # Without certificates, which take longer to load than the emulator to answer.
        wire = httpx.HTTPTransport(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self._client = httpx.Client(transport=wire, timeout=60)
        self._document = openapi(SCHEMAS["github"])

    @property
    def vendor(self) -> Vendor:
        """Itself, as `served` wants it."""
        return self

    def provider(self) -> dict[str, Any]:
        """Settings with states by labels; the token is `$GITHUB_TOKEN`."""
        return {
            "api_url": self.base,
            "token": "$GITHUB_TOKEN",
            "repo": f"{OWNER}/{REPO}",
            "states": {"source": "labels"},
        }

    @property
    @override
    def validates(self) -> bool:
        return self._document is not None

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        return {}

    @override
    def handle(self, asked: Asked) -> Given:
        if self._document is not None and "/pulls" not in asked.path:  # no part of the description here
            self._document.check(asked, Given())  # before it is passed on: nothing wrong reaches the emulator
        answer = self._client.request(
            asked.method,
            asked.address.replace(self.base, self._emulator),
            headers={name: asked.headers[name] for name in _PASSED_ON if name in asked.headers},
            content=None if asked.body is None else json.dumps(asked.body),
        )
        headers = {name: answer.headers[name] for name in _GIVEN_BACK if name in answer.headers}
        if "link" in headers:
            headers["link"] = headers["link"].replace(self._emulator, self.base)
        return Given(
            status=answer.status_code, body=answer.json() if answer.content else None, headers=headers
        )

    @override
    def check(self, asked: Asked, given: Given) -> None:
        if self._document is not None and "/pulls" not in asked.path:
            self._document.check(asked, Given(status=given.status, body=_strict(given.body)))

    # --- behind the gate ---------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """One request of a person, below the repository."""
        answer = self._client.request(
            method,
            f"{self._emulator}/repos/{OWNER}/{REPO}{path}",
            headers={"authorization": f"Bearer {THEIRS}"},
            json=body or None,
        )
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json()

    def issue(self, title: str, *labels: str, body: str | None = None) -> str:
        """A new issue; its number."""
        return str(self.ask("POST", "/issues", title=title, body=body, labels=list(labels))["number"])

    def labels(self, number: str) -> list[str]:
        """The labels of an issue."""
        return sorted(label["name"] for label in self.ask("GET", f"/issues/{number}")["labels"])

    def comments(self, number: str) -> list[dict[str, Any]]:
        """The newest comments of an issue, as many as are on its last page."""
        count = self.ask("GET", f"/issues/{number}")["comments"]
        page = max(1, -(-count // 100))
        found: list[dict[str, Any]] = self.ask("GET", f"/issues/{number}/comments?per_page=100&page={page}")
        return found


@contextmanager
def emulated_github(program: Path, folder: Path) -> Iterator[EmulatedGithub]:
    """The emulator as a process on the loopback interface, with one empty repository of an organisation."""
    people = {SECRET: ME, THEIRS: SOMEBODY}
    seed = {
        "tokens": {token: {"login": login, "scopes": _SCOPES} for token, login in people.items()},
        "github": {
            "users": [{"login": login} for login in people.values()],
            "orgs": [
                {"login": OWNER, "members": [{"login": login, "role": "admin"} for login in people.values()]}
            ],
            "repos": [{"owner": OWNER, "name": REPO}],
        },
    }
    preload, settings, bound, log = (
        folder / name for name in ("loopback.cjs", "seed.json", "bound.json", "emulator.log")
    )
    preload.write_text(_LOOPBACK, encoding="utf-8")
    settings.write_text(json.dumps(seed), encoding="utf-8")
    start = ["node", "--require", str(preload), str(program), "start", "--service", "github"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*start, "--seed", str(settings), "--base-url", EmulatedGithub.base],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "BOUND_TO": str(bound)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: bound.exists() or process.poll() is not None or None, log.read_text)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        address = json.loads(bound.read_text(encoding="utf-8"))
        listening = [
            (each.laddr.ip, each.laddr.port)
            for each in psutil.Process(process.pid).net_connections("inet")
            if each.status == psutil.CONN_LISTEN
        ]
        assert listening == [("127.0.0.1", address["port"])], "the emulator is for this machine alone"
        yield EmulatedGithub(f"http://127.0.0.1:{address['port']}")
    finally:
        process.kill()
        process.wait()


def _strict(body: Any) -> Any:
    """The answer without what is known to be loose in it."""
    if isinstance(body, list):
        return [_strict(record) for record in body]
    if isinstance(body, dict):
        return {key: value for key, value in body.items() if key not in LOOSE or value != LOOSE[key]}
    return body
