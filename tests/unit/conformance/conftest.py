"""A small project that shows every rule, so that a test can break one thing in it."""

import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.choices import CHOICES
from conformance.matrix import ROWS

TESTS = Path(__file__).parents[2]
SETTINGS = (
    "markers =\n  conformance(*ids): x\n  slow: x\ntestpaths = tests\naddopts = --import-mode=importlib\n"
)
CLAIMING = f"""\
import pytest

@pytest.mark.conformance({", ".join(repr(row.id) for row in ROWS if not row.pending)})
def test_all():
    pass
"""


@dataclass
class Suite:
    """A project below `root` with a test for every rule and choice."""

    root: Path

    def create(self) -> "Suite":
        self.write("pytest.ini", f"[pytest]\n{SETTINGS}pythonpath = {shlex.quote(str(TESTS))}\n")
        self.write(
            "tests/conftest.py", "from conformance.recorder import pytest_addoption, pytest_configure\n"
        )
        self.write("tests/test_rules.py", CLAIMING)
        files: dict[str, set[str]] = defaultdict(set)
        for choice in CHOICES:
            for place in choice.places:
                self.write(place, "")
            for test in choice.tests:
                file, _, name = test.partition("::")
                files[file].add(name)
        for file, names in files.items():
            self.write(file, _stubs(names))
        return self

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def add(self, text: str) -> None:
        """Another file of tests."""
        self.write("tests/test_more.py", f"import pytest\n\n{text}\n")

    def conformance(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """`python -m conformance` on this project."""
        options = ("--workers", "0", "--root", str(self.root))
        return self._python("conformance", *options, *arguments, **environment)

    def pytest(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """`pytest` on this project."""
        return self._python("pytest", *arguments, **environment)

    def _python(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """A module as a program, without the plugins of pytest that only our own tests need."""
        path = f"{TESTS}:{TESTS.parent / 'src'}"
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": path,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
        )


def _stubs(names: Iterable[str]) -> str:
    """Tests of these names, each class written once."""
    of_class: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        outer, _, inner = name.rpartition("::")
        of_class[outer].append(inner)
    plain = "".join(f"def {name}():\n    pass\n\n" for name in of_class.pop("", []))
    return plain + "".join(
        f"class {outer}:\n" + "".join(f"    def {name}(self):\n        pass\n\n" for name in inner)
        for outer, inner in of_class.items()
    )


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path).create()
