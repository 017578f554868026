"""A forge on the loopback interface whose branches are those of a real git remote."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from typing_extensions import override

from contract.forges import ForgeDesk, forge_desk
from contract.repository import Pull
from contract.served import served
from contract.vendor import Asked, Given, Vendor
from harness.project import Daemon, Project, remembering, until
from symphony.http import ExchangeError

__all__ = ["Remote", "at"]


class Remote(Vendor):
    """A forge whose branches are those of a bare repository; it may kill the daemon at a request."""

    def __init__(self, desk: ForgeDesk, project: Project) -> None:
        super().__init__(desk.clock)
        self.desk, self.project, self.base = desk, project, desk.vendor.base
        self.bare = project.root / "origin.git"
        self.victim: Daemon | None = None
        self.kills: tuple[str, int, str] | None = None

    @property
    def vendor(self) -> Vendor:
        return self

    def provider(self) -> dict[str, Any]:
        return {"url": self.base}

    @override
    def handle(self, asked: Asked) -> Given:
        return self.desk.vendor.handle(asked)

    @override
    def throttles(self) -> Mapping[str, tuple[Given, int | None]]:
        return self.desk.vendor.throttles()

    @override
    def exchange(self, method: str, address: str, headers: Mapping[str, str], content: bytes | None) -> Given:
        self._look_at_branches()
        mortal = self._is_fatal(method, address)
        if mortal == "before":
            self._kill()
        given = self.desk.vendor.exchange(method, address, headers, content)
        if mortal == "after":
            self._kill()
        return given

    def _look_at_branches(self) -> None:
        """By the files of the references: a process for each request would slow down a busy machine."""
        heads = self.bare / "refs" / "heads"
        for path in heads.rglob("*"):
            if path.suffix == ".lock" or path.is_dir():
                continue
            with suppress(FileNotFoundError):  # it was deleted just now
                name, sha = str(path.relative_to(heads)), path.read_text("ascii").strip()
                self.desk.repository.branches[name] = sha
                for pull in self.opened():
                    if pull.branch == name:
                        pull.sha = sha

    def _is_fatal(self, method: str, address: str) -> str | None:
        """Whether the daemon dies before this request is handled, or after it."""
        if self.kills is None or self.kills[0] not in f"{method} {address}":
            return None
        when, left, moment = self.kills
        self.kills = None if left == 1 else (when, left - 1, moment)
        return moment if left == 1 else None

    def _kill(self) -> NoReturn:
        victim = until(lambda: self.victim, lambda: "the test names no victim")
        os.kill(victim.process.pid, signal.SIGKILL)
        raise ExchangeError("nobody is there any more")

    def opened(self) -> list[Pull]:
        return list(self.desk.repository.pulls.values())


@contextmanager
def at(
    project: Project, kind: str, *, codex: Mapping[str, Any] | None = None, **forge: Any
) -> Iterator[Remote]:
    """A forge with the branches of `origin`; `codex` has settings of another agent than the scripted one."""
    desk = forge_desk(kind)
    remote = Remote(desk, project)
    project.git("init", "--quiet", "--bare", "--initial-branch=main", str(remote.bare))
    project.git("remote", "add", "origin", str(remote.bare))
    project.git("push", "--quiet", "origin", "main")
    project.environment["FORGE_TOKEN"] = desk.vendor.secret
    with served(remote) as settings:
        given = {"kind": kind, "repo": "octo-team/website", "token": "$FORGE_TOKEN", **settings, **forge}
        command = {"command": remembering(project.root / "threads")}
        project.workflow(forge=given, codex=codex or command, workspace={"push": "origin"})
        yield remote
