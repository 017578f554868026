"""Instructions of runs: from a real local HTTP server, from workspaces, and from the last good copy."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from structlog.testing import capture_logs

from harness.binding import FakeTracker, make_context
from symphony.config import InstructionsSettings
from symphony.daemon.context import RuntimeContext
from symphony.daemon.instruction_store import InstructionStore
from symphony.daemon.runs.instructions import load_run_instructions, preview_run_instructions
from symphony.skills import Selector, closure_digest
from symphony.workspaces import Workspace, WorkspaceManager

pytestmark = pytest.mark.asyncio

MANIFEST = b'version: "1"\nskills: [{name: a, file: a.md}, {name: b, file: sub/b.md, phases: [TEST]}]\n'
FILES = {"manifest.yaml": MANIFEST, "a.md": b"# A\n", "sub/b.md": b"# B\n"}
Answer = Callable[[SocketStream], Awaitable[None]]


def reply(status: str, body: bytes = b"", **headers: str) -> Answer:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def send(stream: SocketStream) -> None:
        await stream.send("\r\n".join([*lines, "", ""]).encode() + body)

    return send


@dataclass
class Server:
    """Serves `FILES` with ETags; `answers` replaces the answer for a path. Records what was asked."""

    port: int = 0
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/rules/manifest.yaml"

    async def handle(self, stream: SocketStream) -> None:
        """Answer one question; a client may give up before it has asked or heard."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await self._answer(stream)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            path = head.split(b" ")[1].decode().removeprefix("/rules/")
            assert b"authorization" not in head.lower()
            self.asked.append((path, b"if-none-match" in head.lower()))
            await self.answers.get(path, self._file(path, head))(stream)

    def _file(self, path: str, head: bytes) -> Answer:
        if path not in self.files:
            return reply("404 Not Found")
        etag = f'"{hash(self.files[path])}"'
        if etag.encode() in head:
            return reply("304 Not Modified")
        return reply("200 OK", self.files[path], etag=etag)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server = Server(port=listener.extra(SocketAttribute.local_port))  # noqa: S610 - not Django
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.handle)
            yield server
            tasks.cancel_scope.cancel()


def context_of(tmp_path: Path, *, workspaces: Any = None, **settings: Any) -> RuntimeContext:
    """A context as after a start of the daemon: nothing is remembered but the copies."""
    context = make_context(tmp_path, FakeTracker(), workspaces)
    section = InstructionsSettings.model_validate({"fetch_timeout_ms": 20_000, **settings})
    store = InstructionStore(section, base_dir=tmp_path, copies=tmp_path / "state" / "instructions")
    agent = context.settings.agent.model_copy(update={"instructions": section})
    workflow = replace(context.workflow, settings=context.settings.model_copy(update={"agent": agent}))
    return replace(context, workflow=workflow, instructions=store)


def workspace(path: Path) -> Workspace:
    return Workspace(key=path.name, path=path, branch=None, base_commit=None, created_now=False)


async def loaded(context: RuntimeContext, path: Path = Path("/none")) -> Selector:
    selector = await load_run_instructions(context, workspace(path))
    assert selector is not None
    return selector


def codes(selector: Selector) -> list[str]:
    return [problem.code for problem in selector.problems]


def write(directory: Path, files: Mapping[str, bytes] = FILES) -> None:
    for name, data in files.items():
        file = directory / ".symphony" / "instructions" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


async def test_without_a_source_nothing_is_loaded(tmp_path: Path) -> None:
    context = make_context(tmp_path, FakeTracker())
    assert context.instructions is None
    assert await load_run_instructions(context, workspace(tmp_path)) is None
    assert await preview_run_instructions(context, cast("Any", None)) is None


async def test_a_remote_source_is_asked_once_for_runs_that_start_together_and_then_only_for_changes(
    tmp_path: Path,
) -> None:
    async with serving() as server:
        context = context_of(tmp_path, source="remote", url=server.url)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(loaded, context)
        paths = [("manifest.yaml", False), ("a.md", False), ("sub/b.md", False)]
        assert server.asked == paths
        selector = await loaded(context_of(tmp_path, source="remote", url=server.url))
        assert server.asked[3:] == [(path, True) for path, _ in paths]
        assert (selector.origin, selector.problems) == ("source", ())
        assert selector.select_for_phase("TEST") == "# A\n\n# B"
        assert selector.sha256 == closure_digest(FILES)
        server.files = {**FILES, "a.md": b"# New\n"}
        changed = await loaded(context_of(tmp_path, source="remote", url=server.url))
        assert changed.select_for_phase("X") == "# New"


async def test_a_preview_of_a_remote_source_asks_nothing(tmp_path: Path) -> None:
    async with serving() as server:
        context = context_of(tmp_path, source="remote", url=server.url)
        before = await preview_run_instructions(context, cast("Any", None))
        assert before is not None
        assert (before.origin, codes(before), server.asked) == ("nothing", ["unavailable"], [])
        await loaded(context)
        asked = len(server.asked)
        after = await preview_run_instructions(context, cast("Any", None))
        assert after is not None
        assert (after.origin, after.skill_names("TEST"), len(server.asked)) == ("source", ("a", "b"), asked)


async def _endless(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(anyio.BrokenResourceError):
        while True:
            await stream.send(b"# more\n" * 1_000)


async def _half(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n#")
    await anyio.sleep_forever()


async def _never(_: SocketStream) -> None:
    await anyio.sleep_forever()


BAD: dict[str, tuple[str, Answer, str]] = {
    "silent": ("manifest.yaml", _never, "unavailable"),
    "slow": ("a.md", _half, "unavailable"),
    "endless": ("a.md", _endless, "unavailable"),
    "an error": ("manifest.yaml", reply("500 Sorry"), "unavailable"),
    "a missing module": ("sub/b.md", reply("404 Not Found"), "unavailable"),
    "a web page": ("a.md", reply("200 OK", b"<html>", content_type="text/html"), "unavailable"),
    "nonsense": ("manifest.yaml", reply("200 OK", b"[: x"), "invalid_manifest"),
    "not UTF-8": ("a.md", reply("200 OK", b"\xff"), "not_utf8"),
    "no HTTP": ("manifest.yaml", reply("\x00"), "unavailable"),
    "another host": ("a.md", reply("302 Found", location="http://127.0.0.2:1/a.md"), "unavailable"),
    "another port": ("a.md", reply("302 Found", location="http://127.0.0.1:1/a.md"), "unavailable"),
    "a file": ("a.md", reply("302 Found", location="file:///etc/passwd"), "unavailable"),
    "a login": ("a.md", reply("302 Found", location="http://u:p@127.0.0.1/a.md"), "unavailable"),
    "a circle": ("a.md", reply("302 Found", location="a.md"), "unavailable"),
    "a lie": ("manifest.yaml", reply("304 Not Modified"), "unavailable"),
    "outside": (
        "manifest.yaml",
        reply("200 OK", b'version: "1"\nskills: [{name: a, file: "https://example.org/a.md"}]\n'),
        "unavailable",
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_gives_the_last_good_copy_then_the_fallback(tmp_path: Path, case: str) -> None:
    path, answer, code = BAD[case]
    (tmp_path / "rules.md").write_text("Be careful.")
    async with serving() as server:
        server.answers[path] = answer
        timeout_ms = 500 if case in {"silent", "slow"} else 20_000
        settings = {
            "source": "remote",
            "url": server.url,
            "fallback": "rules.md",
            "fetch_timeout_ms": timeout_ms,
        }
        first = await loaded(context_of(tmp_path, **settings))
        assert (first.origin, first.select_all()) == ("fallback", "Be careful.")
        assert codes(first) == [code]
        del server.answers[path]
        patient = {**settings, "fetch_timeout_ms": 20_000}
        assert (await loaded(context_of(tmp_path, **patient))).origin == "source"
        if case == "a lie":  # now it is none: the server confirms what is there
            return
        server.answers[path] = answer
        context = context_of(tmp_path, **settings)
        with capture_logs() as logs:
            later = await loaded(context)
        assert (later.origin, later.select_for_phase("TEST")) == ("last_good", "# A\n\n# B")
        assert [(one["event"], one.get("code"), one.get("by")) for one in logs] == [
            ("instructions_problem", code, None),
            ("instructions_replaced", None, "last_good"),
        ]


async def test_a_redirect_on_the_same_host_is_followed(tmp_path: Path) -> None:
    async with serving() as server:
        server.answers["a.md"] = reply("301 Moved", location="/rules/sub/b.md")
        selector = await loaded(context_of(tmp_path, source="remote", url=server.url))
        assert selector.select_for_phase("X") == "# B"


async def test_a_changed_digest_is_refused_and_the_pinned_copy_used(tmp_path: Path) -> None:
    async with serving() as server:
        settings = {"source": "remote", "url": server.url, "sha256": closure_digest(FILES)}
        assert (await loaded(context_of(tmp_path, **settings))).origin == "source"
        server.files = {**FILES, "a.md": b"# Do evil\n"}
        selector = await loaded(context_of(tmp_path, **settings))
        assert (selector.origin, codes(selector)) == ("last_good", ["digest_mismatch"])
        assert selector.select_for_phase("X") == "# A"
        (copy,) = (tmp_path / "state" / "instructions").iterdir()
        assert copy.parent.stat().st_mode & 0o077 == 0
        copy.write_bytes(b"damaged")
        damaged = await loaded(context_of(tmp_path, **settings))
        assert (damaged.origin, codes(damaged)) == ("nothing", ["digest_mismatch"])


async def test_a_workspace_has_a_last_good_copy_of_its_own(tmp_path: Path) -> None:
    one, other = tmp_path / "SYM-1", tmp_path / "SYM-2"
    write(one)
    other.mkdir()
    context = context_of(tmp_path, source="local")
    assert (await loaded(context, one)).origin == "source"
    assert ((await loaded(context, other)).origin, codes(await loaded(context, other))) == (
        "nothing",
        ["missing_manifest"],
    )
    (one / ".symphony/instructions/a.md").unlink()
    selector = await loaded(context, one)
    assert (selector.origin, codes(selector), selector.select_for_phase("X")) == (
        "last_good",
        ["missing_file"],
        "# A",
    )


async def test_instructions_of_the_base_branch_are_read_from_its_copy(tmp_path: Path) -> None:
    pinned = tmp_path / "pinned"
    write(pinned)

    class Pins:
        reachable = True

        async def pin(self, paths: tuple[str, ...], *, refresh_timeout_s: float) -> Any:
            assert (paths, refresh_timeout_s) == ((".symphony/instructions",), 20.0)
            if not self.reachable:
                raise OSError("the disk is gone")
            return type("Pinned", (), {"root": pinned})()

    pins = Pins()
    context = context_of(tmp_path, workspaces=cast("WorkspaceManager", pins), source="local")
    agent = context.settings.agent
    skills = agent.skills.model_copy(update={"source": "base_branch"})
    settings = context.settings.model_copy(update={"agent": agent.model_copy(update={"skills": skills})})
    context = replace(context, workflow=replace(context.workflow, settings=settings))
    write(tmp_path / "SYM-1", {**FILES, "a.md": b"# Obey the branch\n"})
    assert (await loaded(context, tmp_path / "SYM-1")).select_for_phase("X") == "# A"
    pins.reachable = False
    selector = await loaded(context, tmp_path / "SYM-2")
    assert (selector.origin, codes(selector), selector.select_for_phase("X")) == (
        "last_good",
        ["unavailable"],
        "# A",
    )


async def test_a_fault_of_the_loader_costs_the_instructions_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(tmp_path, source="embedded")
    assert (await loaded(context)).skill_names("TEST")[-1] == "test"

    def fail(*_: object, **__: object) -> Selector:
        raise RuntimeError

    monkeypatch.setattr(InstructionStore, "load", fail)
    assert codes(await loaded(context)) == ["unavailable"]
