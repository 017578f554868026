"""Every key with everything it must not be: one line, at the line of the key, with a hint."""

from typing import TYPE_CHECKING

import pytest

from symphony.config import KEYS, Key
from symphony.domain import Blame
from unit.config.conftest import NUMBERS_AS_TEXT

if TYPE_CHECKING:
    from unit.config.conftest import Parse, Refuse

HUGE = "9" * 400
NOT_TEXT = ("true", "7", "1.5", ".nan", ".inf", "[a]", "{a: 1}")
NUL = '"a\\0b"'
BLANK = ("''", "'  '")
NOT_A_NUMBER = ("true", "'7'", "many", "1.5", "1.0", ".nan", ".inf", "[1]", "{a: 1}", HUGE, f"-{HUGE}")
NOT_A_MAP = ("true", "7", "1.5", "text", "[a]", ".nan", "''")
NOT_A_LIST = ("true", "7", "1.5", "text", "{a: 1}", ".nan", "''")
NOT_A_WORD = (*NOT_TEXT, *BLANK, "maybe", NUL)

BY_SHAPE = {
    "text": (*NOT_TEXT, *BLANK, NUL),
    "script": (*NOT_TEXT, NUL),
    "path": (*NOT_TEXT, *BLANK, NUL, "~no-such-user-here/x"),
    "path or URL": (*NOT_TEXT, *BLANK, NUL, "-x", "--upload-pack=x"),
    "path of a file": (*NOT_TEXT, *BLANK, NUL),
    "64 hexadecimal digits": (*NOT_TEXT, *BLANK, NUL, "sha256", "a" * 63, "g" * 64),
    "https address": (
        *(*NOT_TEXT, *BLANK, NUL, "manifest.yaml", "https://", "ftp://example.org/m.yaml"),
        *("http://example.org/m.yaml", "http://127.0.0.1.example.org/m.yaml", "https://[::1/m.yaml"),
        *("https://user:password@example.org/m.yaml", "https://token@example.org/m.yaml"),
        *("https://example.org/m.yaml?token=x", "'https://example.org/m.yaml#x'", "https://example.org:x/m"),
        *("'https://example.org/a b'", "https://exämple.org/m.yaml"),
    ),
    "http or https URL": (
        *(*NOT_TEXT, *BLANK, NUL, "example.org", "ftp://example.org", "file:///tmp/x", "http://"),
        *("https://user:password@example.org", "'http://example.org/a b'", "http://example.org:x"),
    ),
    "map of name to text": NOT_A_MAP,
    "relative path": (*NOT_TEXT, *BLANK, NUL, "/etc", "..", "a/../../b", "'~/x'"),
    "absolute path": (*NOT_TEXT, *BLANK, NUL, "a/b", "../b"),
    "absolute path, or list of them": (
        *("7", "true", "1.5", "{a: b}", "[7]", "[/a, b]", "['']"),
        *BLANK,
        *(NUL, "a/b", "./x", "..", "'~other/x'", "$HOME/x"),
    ),
    "shell command": (*NOT_TEXT, *BLANK, NUL),
    "true or false": ("0", "1", "'yes'", "'true'", "''", "[]", "{}", ".nan", "1.0"),
    "one word": (*NOT_TEXT, *BLANK, NUL, "'a b'", "a,b", "'T:'", "a" * 65),
    "number": NOT_A_NUMBER,
    "number > 0": (*NOT_A_NUMBER, "0", "-1"),
    "number ≥ 0": (*NOT_A_NUMBER, "-1"),
    "number 0 to 65535": (*NOT_A_NUMBER, "-1", "65536"),
    "number 1 to 60000": (*NOT_A_NUMBER, "0", "60001"),
    "number 0 to 0.5": ("true", "'0.1'", "many", ".nan", ".inf", "[1]", "{a: 1}", "-0.1", "0.51", HUGE),
    "map": NOT_A_MAP,
    "map of state to number > 0": NOT_A_MAP,
    "text or map": ("true", "7", "1.5", "[a]", ".nan"),
    "list of text": NOT_A_LIST,
    "list of relative paths": NOT_A_LIST,
    "list of variable names": (*NOT_A_LIST, "['A-B']", "['']", "[7]"),
    "map of variable name to text": NOT_A_MAP,
    "map of label to value": NOT_A_MAP,
    "list of rules": NOT_A_LIST,
    "list of scripts": ("5", "{a: 1}", "[7]", "[{name: x}]", "[{run: x, timeout_ms: 0}]"),
    "list of schedules": ("5", "{a: 1}", "[7]", "[{name: x}]", "[{name: x, cron: 0 0 30 2 *, title: T}]"),
    "list of targets": (),  # what is wrong is a warning: test_notify.py
    "name of an agent": (*NOT_TEXT, *BLANK, NUL, "nobody"),
    "map of name to settings": NOT_A_MAP,
    "map of model to price": NOT_A_MAP,
}
"""What a value of each shape must not be. A new shape without an entry here fails every case of its keys."""

FURTHER = {
    "workspace.base_branch": ("-x",),
    "server.host": ("a b", "' a'"),
    "worker.ssh_hosts": ("['-oProxyCommand=x']", "[a b]", "['h:0']", "['h:65536']", "['a@-h']", "['$(x)']"),
    "worker.ssh.command": ("-x",),
    "worker.ssh.python": ("a b", "../x", "$(x)"),
    "worker.ssh.options": (
        "['-o', 'StrictHostKeyChecking=no']",
        "['-ostricthostkeychecking off']",
        "['-oUserKnownHostsFile=/dev/null']",
    ),
    "worker.ray.address": ("h", "auto", "a@h:1", "h:0", "h:65536", "ray://h:1"),
    "worker.ray.remote_root": ("../x",),
    "worker.ray.runtime_env": ("{a: .nan}",),
    "codex.approval_policy": ("{a: .nan}", "{a: [{b: .inf}]}"),
    "codex.turn_sandbox_policy": ("{a: .nan}",),
    "agent.phases.rules": (
        "[7]",
        "[{phase: T}]",
        "[{label: x}]",
        "[{label: x, phase: a b}]",
        "[{state: 1, phase: T}]",
    ),
    "tracker.kind": ("Markdown", "markdown.", "'mark down'", "a" * 5_000),
    "agent.kind": ("Codex", "'co dex'"),
}


def _refused(key: Key) -> tuple[str, ...]:
    words = NOT_A_WORD if key.shape.startswith("`") else BY_SHAPE[key.shape]
    if key.name in NUMBERS_AS_TEXT:
        words = tuple(word for word in words if word != "'7'")
    return (*words, *FURTHER.get(key.name, ()))


def _file(name: str, value: str) -> tuple[str, int]:
    """A workflow that sets one key on a line of its own, and the number of that line."""
    lines = ["---"]
    *sections, key = name.split(".")
    if sections[:1] != ["tracker"]:
        lines.append("tracker: {kind: markdown}")
    elif key != "kind":
        lines += ["tracker:", "  kind: markdown"]
        sections = []
    lines += [f"{'  ' * depth}{section}:" for depth, section in enumerate(sections)]
    depth = name.count(".")
    lines.append(f"{'  ' * depth}{key}: {value}")
    return "\n".join([*lines, "---", "Do it."]), len(lines)


@pytest.mark.conformance("C-7")
@pytest.mark.parametrize("key", KEYS.values(), ids=lambda key: key.name)
def test_a_value_that_does_not_fit_is_one_line_with_its_place_and_a_hint(refuse: "Refuse", key: Key) -> None:
    for value in _refused(key):
        text, line = _file(key.name, value)

        (failure,) = refuse(text)

        assert failure.message.startswith((f"{key.name} ", f"{key.name}[")), value
        assert "\n" not in failure.message, value
        assert len(failure.message) < 400, value
        assert failure.where == f"/repo/WORKFLOW.md:{line}", value
        assert failure.hint, value
        assert failure.blame is Blame.CONFIG, value
        assert not failure.retryable, value


@pytest.mark.conformance("C-7")
@pytest.mark.parametrize("name", ["active_states", "terminal_states", "required_labels"])
@pytest.mark.parametrize("item", [*NOT_TEXT, NUL])
def test_an_item_of_a_list_that_does_not_fit_is_named(refuse: "Refuse", name: str, item: str) -> None:
    (failure,) = refuse(f"---\ntracker:\n  kind: markdown\n  {name}:\n    - fine\n    - {item}\n---\nx")

    assert failure.message.startswith(f"tracker.{name}[1] ")
    assert failure.where == "/repo/WORKFLOW.md:6"


@pytest.mark.conformance("C-7")
def test_every_section_suggests_the_key_that_was_meant(parse: "Parse") -> None:
    sections = {name.rsplit(".", 1)[0] for name in KEYS if "." in name}
    for section in sorted(sections):
        known = next(name for name in KEYS if name.rsplit(".", 1)[0] == section and name != "tracker.kind")
        misspelt = f"{known}x"
        (warning,) = parse(_file(misspelt, "1")[0]).warnings

        assert warning.message == f'unknown key "{misspelt}" is ignored'
        assert warning.where == f"/repo/WORKFLOW.md:{_file(misspelt, '1')[1]}"
        assert warning.hint == f'did you mean "{known.rsplit(".", 1)[1]}"?'


@pytest.mark.conformance("C-6")
@pytest.mark.parametrize("limit", ["0", "-1", "true", "1.0", "'2'", "many", "[1]", "{a: 1}", ".nan", HUGE])
def test_a_limit_that_is_none_is_left_out_with_a_warning(parse: "Parse", limit: str) -> None:
    text, line = _file("agent.max_concurrent_agents_by_state.Todo", limit)

    workflow = parse(text)

    assert workflow.settings.agent.max_concurrent_agents_by_state == {}
    assert [warning.where for warning in workflow.warnings] == [f"/repo/WORKFLOW.md:{line}"]


def test_a_limit_without_a_value_is_no_limit(parse: "Parse") -> None:
    workflow = parse(_file("agent.max_concurrent_agents_by_state.Todo", "")[0])
    assert workflow.settings.agent.max_concurrent_agents_by_state == {}
    assert workflow.warnings == ()
