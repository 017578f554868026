import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.skills import CatalogBlock, Problem, Severity, SkillOptions, SkillSet, load, render


class Shelf:
    """A workspace under test: writes skill files, loads them, and answers short questions."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.root = workspace / ".symphony" / "skills"

    def write(self, directory: str, data: str | bytes, *, file: str = "SKILL.md") -> Path:
        path = self.root / directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def skill(self, directory: str, *fields: str, body: str = "# Body\n") -> Path:
        """A skill whose front matter has these lines; a name and a description unless given."""
        lines = [*fields]
        if not any(field.startswith("name:") for field in fields):
            lines.insert(0, f"name: {directory}")
        if not any(field.startswith(("description:", "when_to_use:")) for field in fields):
            lines.append(f"description: About {directory}.")
        return self.write(directory, "\n".join(["---", *lines, "---", body]))

    def load(self, **options: object) -> SkillSet:
        return load(self.workspace, SkillOptions(**options))  # type: ignore[arg-type]

    def render(self, **options: object) -> CatalogBlock:
        chosen = SkillOptions(**options)  # type: ignore[arg-type]
        return render(load(self.workspace, chosen), chosen)

    def entries(self, **options: object) -> list[str]:
        text = self.render(**options).text
        return [] if text is None else text.split("\n")[4:]

    def names(self, **options: object) -> list[str]:
        return [skill.name for skill in self.load(**options).skills]

    def problems(self, *severities: Severity, **options: object) -> list[tuple[str, str]]:
        """(code, path below the root) of the errors, or of the severities asked for."""
        wanted = severities or (Severity.ERROR,)
        found = self.load(**options).problems
        return [
            (one.code, one.path.removeprefix(".symphony/skills/")) for one in found if one.severity in wanted
        ]

    def warnings(self) -> list[str]:
        return [code for code, _ in self.problems(Severity.WARNING)]

    def only_problem(self) -> Problem:
        (problem,) = [one for one in self.load().problems if one.severity is not Severity.INFO]
        return problem

    def error_of(self, data: str | bytes) -> str:
        """The one error of a file in `a/` that must not be loaded."""
        self.write("a", data)
        assert self.names() == []
        ((code, path),) = self.problems()
        assert path == "a/SKILL.md"
        return code


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes each read of a file gave, in order."""
    sizes: list[int] = []
    real = os.read

    def read(descriptor: int, length: int) -> bytes:
        data = real(descriptor, length)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "read", read)
    return sizes


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the file system calls that were made, but for those of the coverage tool's own."""
    made: list[str] = []

    def spy(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            files = [frame.f_code.co_filename for frame, _ in traceback.walk_stack(None)]
            if not any("/coverage/" in file for file in files):
                made.append(name)
            return real(*args, **kwargs)

        return call

    for name in ("open", "scandir", "stat", "lstat", "listdir", "read", "getcwd", "readlink"):
        monkeypatch.setattr(os, name, spy(name, getattr(os, name)))
    return made
