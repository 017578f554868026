"""Nothing reaches into other modules: what ruff's `banned-api` and SLF001 cannot tell of it.

Ruff refuses the names that are listed in pyproject.toml, and private attributes. Here stand the rules about
what is done to a name: an attribute of an imported module is given another value, something private is
imported, or a frozen value is made or written past its class.
"""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "symphony"


_KINDS = (ast.Assign, ast.AugAssign, ast.Attribute, ast.Call, ast.Delete, ast.Import, ast.ImportFrom)
"""What a trick can be: the other nodes, nine of ten, are not looked at."""


def _imported(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that imports bind, modules and what comes out of them alike."""
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _root(node: ast.expr) -> str | None:
    """The name at the left end of `a.b.c` or `vars(a)["b"]`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner) | ast.Subscript(value=inner):
            return _root(inner)
        case ast.Call(func=ast.Name(id="vars"), args=[inner]):
            return _root(inner)
        case _:
            return None


def _private(name: str) -> bool:
    parts = [part for part in name.split(".") if not part.startswith("__")]
    return any(part.startswith("_") for part in parts)


def _written(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement or a call gives another value, where that is no name."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return [target for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]
        case ast.AugAssign(target=ast.Attribute() | ast.Subscript() as target):
            return [target]
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[first, *_]):
            return [first]
        case _:
            return []


def _trick(node: ast.AST, imported: set[str]) -> str | None:
    if any(_root(target) in imported for target in _written(node)):
        return "writes into what it imported"
    match node:
        case ast.Attribute(value=ast.Name(id="object"), attr="__new__" | "__setattr__" | "__delattr__"):
            return "works past a class"
        case ast.Attribute(attr="__set__"):
            return "works past a class"
        case ast.Import(names=names):
            module = ""
        case ast.ImportFrom(module=str(module), names=names):
            pass
        case _:
            return None
    private = any(_private(name) for name in (module, *(alias.name for alias in names)))
    return "imports something private" if private else None


def tricks(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and rule of each."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, _KINDS)]
    imported = _imported(nodes)
    for node in nodes:
        if rule := _trick(node, imported):
            yield getattr(node, "lineno", 0), rule


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import re\nre.compile = None", ["writes into what it imported"]),
        ("import re\nvars(re)['compile'] = None", ["writes into what it imported"]),
        ("import re\nsetattr(re, 'compile', None)", ["writes into what it imported"]),
        ("import os.path\ndel os.path.join", ["writes into what it imported"]),
        ("from a.b import C\nC.limit += 1", ["writes into what it imported"]),
        ("import sys\nsys.modules['rich'] = None", ["writes into what it imported"]),
        ("object.__setattr__(value, 'name', 1)", ["works past a class"]),
        ("copy = object.__new__(State)", ["works past a class"]),
        ("write = vars(State)['name'].__set__", ["works past a class"]),
        ("from httpx._models import Response", ["imports something private"]),
        ("from dataclasses import _create_fn", ["imports something private"]),
        ("import _thread", ["imports something private"]),
        (
            """
            from __future__ import annotations
            import re
            from a import B
            class C(B):
                def __init__(self) -> None:
                    super().__init__()
                    self.pattern = re.compile("a")
                    self.pattern.flags = {}
                    setattr(self, "name", B.name)
            """,
            [],
        ),
    ],
)
def test_a_trick_is_found(code: str, found: list[str]) -> None:
    assert [rule for _, rule in tricks(ast.parse(textwrap.dedent(code)))] == found


def test_no_module_reaches_into_another() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {rule}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line, rule in tricks(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
