r"""The script: a fenced block of JSON in the prompt, read into typed steps (pure).

    ```scripted
    [
      [{"skill": "commit-style"}, {"write": "greeting.txt", "text": "hello\n"},
       {"commit": "{skill_value}: greet"}],
      [{"tool": "board_move", "arguments": {"state": "Done"}}]
    ]
    ```

A list of turns, each a list of steps. The first turn on a thread runs the first list; a later turn whose
prompt holds no script runs the next one. A retried issue gets a new process, which begins with the first
list again: therefore every step that changes something may be repeated (`commit` without a change does
nothing, `append` adds no text that is already there), and a script needs no memory. A thread that is resumed
(switch `--threads`) goes on with the turn that did not come to its end.

Steps, one object each:

* `{"say": text}`
* `{"skill": name, "value_of": key}`: read the skill that the system-level block lists; the value of its
  line `key: value` is what `{skill_value}` stands for in later steps (`value_of` may be left out)
* `{"write": path, "text": text}`, `{"append": path, "text": text}`: below the workspace only
* `{"run": argv or shell text}`; `"may_fail": true` lets the turn go on after a non-zero exit code
* `{"commit": message}`: `git add -A`, and `git commit` when something changed
* `{"tool": name, "arguments": {...}}`: a tool of the client; `may_fail` as above
* `{"ask_approval": command}`: ask, and run the command when it is granted
* `{"ask_input": question}`: ask a person, once on a thread
* `{"sleep_ms": n}`, `{"wait_for": path}`: wait; `wait_for` until the path exists
* `{"fail": message}`: the turn fails; `{"exit": code}`: the process ends at once
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Find a skill in the system-level block and a value in its body, as a model would read them (pure).


# Patterns, compiled where they are used: most starts need one of them.
_HEADING = r"^## Available skills[ \t]*$"
_ROOT = r"(/[^`\n]*)/(?:<\w+>|\{\w+\})/SKILL\.md"
_DIRECTORY = r"[ \t]*\(directory:? `?([^`\n]*?)`?\)(?=[ \t]|$)"
_FILE = r"[ \t]*\(file: (/[^\n]*?/SKILL\.md)\)(?=[ \t]|$)"
_USUAL_KEYS = ("commit-prefix", "signed-off-by", "signed-off")


def path_of(instructions: str, name: str) -> str | None:
    """The path of the SKILL.md of `name` in the `## Available skills` block; `None` if it is not listed.

    The line on use names the root, as in `/skills-root/{directory}/SKILL.md`; an entry names its directory in
    parentheses where that differs from the skill, or the whole path of a file below another root.
    """
    heading = re.search(_HEADING, instructions, re.MULTILINE)
    if heading is None:
        return None
    body = re.split(r"^#{1,2} ", instructions[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    root = re.search(_ROOT, body)
    entry = re.search(rf"^- `?{re.escape(name)}`?(?=$|[ \t(]|:)(.*)$", body, re.MULTILINE)
    if root is None or entry is None:
        return None
    file = re.match(_FILE, entry[1])
    if file is not None:
        return file[1]
    said = re.match(_DIRECTORY, entry[1])
    return f"{root[1]}/{said[1] if said else name}/SKILL.md"


def value_in(text: str, key: str | None) -> str | None:
    """The value of the first line `key: value` of a SKILL.md's body; `None` if there is none.

    A line may be a list entry or be in backticks. Without a key the usual ones are tried in order.
    """
    body = re.sub(r"\A---\r?\n.*?^---[ \t]*\r?$", "", text, count=1, flags=re.MULTILINE | re.DOTALL)
    for wanted in (key,) if key is not None else _USUAL_KEYS:
        found = re.search(
            rf"^[\s>*`-]*{re.escape(wanted)}[*`]*:[ \t]*(.+?)[\s`]*$", body, re.MULTILINE | re.IGNORECASE
        )
        if found is not None:
            return found[1].strip("`* \t")
    return None


_FENCE = re.compile(r"^(`{3,})scripted[ \t]*\r?\n(.*?)^\1`*[ \t]*\r?$", re.MULTILINE | re.DOTALL)


class ScriptError(ValueError):
    """The script is invalid; the message names the turn and the step."""


class SayStep(NamedTuple):
    """Say something to people."""

    text: str


class SkillStep(NamedTuple):
    """Read a listed skill; remember the value of its line `value_of: …` (`None`: a usual key)."""

    name: str
    value_of: str | None = None


class WriteStep(NamedTuple):
    """Write a file of the workspace whole."""

    path: str
    text: str


class AppendStep(NamedTuple):
    """Add text to a file of the workspace unless it is already there."""

    path: str
    text: str


class RunStep(NamedTuple):
    """Run a command in the workspace."""

    argv: tuple[str, ...]
    may_fail: bool = False


class CommitStep(NamedTuple):
    """Commit everything that changed."""

    message: str


class ToolStep(NamedTuple):
    """Call a tool of the client."""

    name: str
    arguments: Mapping[str, Any]
    may_fail: bool = False


class ApprovalStep(NamedTuple):
    """Ask whether a command may run, and run it if so."""

    argv: tuple[str, ...]


class InputStep(NamedTuple):
    """Ask a person a question."""

    question: str


class SleepStep(NamedTuple):
    """Wait for a time."""

    duration_ms: int


class WaitStep(NamedTuple):
    """Wait until a path exists."""

    path: str


class FailStep(NamedTuple):
    """Fail the turn."""

    message: str


class ExitStep(NamedTuple):
    """End the process at once."""

    code: int


Step = (
    SayStep
    | SkillStep
    | WriteStep
    | AppendStep
    | RunStep
    | CommitStep
    | ToolStep
    | ApprovalStep
    | InputStep
    | SleepStep
    | WaitStep
    | FailStep
    | ExitStep
)
Script = tuple[tuple[Step, ...], ...]
_Json = Mapping[str, Any]


def parse(prompt: str) -> Script | None:
    """The first script in `prompt`, or `None`.

    Raises:
        ScriptError: the block does not contain a script.
    """
    found = _FENCE.search(prompt)
    if found is None:
        return None
    try:
        turns = json.loads(found[2])
    except ValueError as error:
        raise ScriptError(f"scripted block: not JSON: {error}") from error
    if not isinstance(turns, list):
        raise ScriptError("scripted block: not a list of turns")
    return tuple(_turn(number, steps) for number, steps in enumerate(turns, 1))


def block(*turns: list[dict[str, Any]]) -> str:
    """The fenced block that `parse` reads, for issue descriptions; `turns` are lists of step objects."""
    lines = ",\n".join(f"  {json.dumps(steps, ensure_ascii=False)}" for steps in turns)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", lines)), default=0))
    return f"{fence}scripted\n[\n{lines}\n]\n{fence}\n"


def _turn(number: int, steps: object) -> tuple[Step, ...]:
    if not isinstance(steps, list):
        raise ScriptError(f"scripted block: turn {number} is not a list of steps")
    return tuple(_step(f"turn {number}, step {place}", step) for place, step in enumerate(steps, 1))


def _step(where: str, step: object) -> Step:
    if not isinstance(step, dict):
        raise ScriptError(f"scripted block: {where} is not an object")
    kinds = [key for key in step if key in _KINDS]
    if len(kinds) != 1:
        raise ScriptError(f"scripted block: {where} needs exactly one of {', '.join(_KINDS)}")
    build, others = _KINDS[kinds[0]]
    if unknown := step.keys() - others - {kinds[0]}:
        raise ScriptError(f"scripted block: {where} has an unknown key {min(unknown)!r}")
    try:
        return build(step)
    except _WrongValueError as error:
        raise ScriptError(f"scripted block: {where}: {error}") from error


class _WrongValueError(ValueError):
    """A value of a step has the wrong type for its key."""


def _text(step: _Json, key: str) -> str:
    value = step.get(key)
    if not isinstance(value, str):
        raise _WrongValueError(f"{key!r} is not text")
    return value


def _number(step: _Json, key: str) -> int:
    value = step[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _WrongValueError(f"{key!r} is not a whole number from 0 up")
    return value


def _flag(step: _Json, key: str) -> bool:
    value = step.get(key, False)
    if not isinstance(value, bool):
        raise _WrongValueError(f"{key!r} is neither true nor false")
    return value


def _argv(step: _Json, key: str) -> tuple[str, ...]:
    value = step[key]
    if isinstance(value, str) and value:
        return ("bash", "-c", value)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise _WrongValueError(f"{key!r} is neither text nor a list of texts")


def _arguments(step: _Json) -> Mapping[str, Any]:
    value = step.get("arguments", {})
    if not isinstance(value, dict):
        raise _WrongValueError("'arguments' is not an object")
    return value


def _skill(step: _Json) -> SkillStep:
    value_of = _text(step, "value_of") if "value_of" in step else None
    return SkillStep(name=_text(step, "skill"), value_of=value_of)


_MAY_FAIL = frozenset({"may_fail"})
_KINDS: Mapping[str, tuple[Callable[[_Json], Step], frozenset[str]]] = {
    "say": (lambda step: SayStep(text=_text(step, "say")), frozenset()),
    "skill": (_skill, frozenset({"value_of"})),
    "write": (
        lambda step: WriteStep(path=_text(step, "write"), text=_text(step, "text")),
        frozenset({"text"}),
    ),
    "append": (
        lambda step: AppendStep(path=_text(step, "append"), text=_text(step, "text")),
        frozenset({"text"}),
    ),
    "run": (lambda step: RunStep(argv=_argv(step, "run"), may_fail=_flag(step, "may_fail")), _MAY_FAIL),
    "commit": (lambda step: CommitStep(message=_text(step, "commit")), frozenset()),
    "tool": (
        lambda step: ToolStep(
            name=_text(step, "tool"), arguments=_arguments(step), may_fail=_flag(step, "may_fail")
        ),
        _MAY_FAIL | {"arguments"},
    ),
    "ask_approval": (lambda step: ApprovalStep(argv=_argv(step, "ask_approval")), frozenset()),
    "ask_input": (lambda step: InputStep(question=_text(step, "ask_input")), frozenset()),
    "sleep_ms": (lambda step: SleepStep(duration_ms=_number(step, "sleep_ms")), frozenset()),
    "wait_for": (lambda step: WaitStep(path=_text(step, "wait_for")), frozenset()),
    "fail": (lambda step: FailStep(message=_text(step, "fail")), frozenset()),
    "exit": (lambda step: ExitStep(code=_number(step, "exit")), frozenset()),
}
