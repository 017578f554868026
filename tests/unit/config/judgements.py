"""Random workflow files and what the program says of each, kept as data.

`judgements.json.gz` holds the files, the variables they were judged with and the facts of each judgement:
accepted or not, the values, and of every failure and warning its code, key, line and suggestion, but no
sentences. `PYTHONPATH=tests python -m unit.config.judgements` judges these files anew and writes the data; do
so only where a change of the facts is meant.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

from symphony.config import KEYS, Key, Secret, WorkflowFile
from symphony.daemon.admission import judge
from symphony.trackers.registry import tracker_kind

DATA = Path(__file__).with_name("judgements.json.gz")
FILE = Path("/repo/WORKFLOW.md")

Tree = dict[str, "Tree | str"]
Case = dict[str, Any]

_HUGE = "9" * 40
_WRONG = ("true", "7", "1.5", ".nan", "[a]", "{a: 1}", "'two words'", "''", "' '", '"a\\0b"', "null", "~", "")
_SECRETS = ("ghp_0123456789abcdefghij", "glpat-0123456789abcdefghij", "sk-0123456789abcdefghij")
_GOOD = {
    "text": ("Todo", "'In Progress'", "main", "x-y_z", "ärger", "-x", "' a b'"),
    "one word": ("REVIEW", "two words", "' x '", "''"),
    "list of targets": (
        *("[{kind: command, command: x, on: [ready]}]", "[{kind: slack}]", "[7]", "[]"),
        "[{kind: webhook, url: $UNSET, on: [blocked, nothing]}]",
    ),
    "map of model to price": ("{m: {input: 1, output: 2}}", "{m: 7}", "{m: {input: -1}}", "{}", "[a]"),
    "map of label to value": ("{zone: a}", "{}", "{7: x}", "{zone: [a]}", "[a]"),
    "`host:port`": ("10.0.0.1:6379", "head:6379", "head", "http://head:6379"),
    "script": ("make", "'git status'", "' '", "|\n      make\n      make test"),
    "path": ("~/w", "$ROOT", "/srv/w", "w", "$UNSET", "$SYMPHONY_STATE_DIR/w", "$ROOT/x", "~none-such/x"),
    "path or URL": (".", "https://h.test/x.git", "/srv/repo", "git@h.test:x.git", "$REPO", "$UNSET", "-x"),
    "path of a file": ("rules.md", "/srv/rules.md", "~/rules.md", "..", "$ROOT"),
    "https address": ("https://h.test/manifest.yaml", "http://127.0.0.1:8000/m.yaml", "http://h.test/m.yaml"),
    "64 hexadecimal digits": ("a" * 64, "B" * 64, "a" * 63, "sha256"),
    "http or https URL": ("http://127.0.0.1:4318/v1/traces", "https://h.test", "h.test", "ftp://h.test"),
    "relative path": (".skills", "a/b", "..", "/etc", "a/../b"),
    "absolute path": ("~/library.db", "/srv/library.db", "library.db"),
    "absolute path, or list of them": ("~/skills", "[/a, ~/b]", "/a", "a/b", "[]", "null", "[/a, b]"),
    "shell command": ("codex app-server", "'my agent'", "sh -c x", "claude --dangerously-skip-permissions"),
    "true or false": ("true", "false", "yes", "on", "'true'", "1"),
    "number": ("0", "5", "-1", "300000", _HUGE, f"-{_HUGE}", "1_000", "0x10", "1e3"),
    "number > 0": ("1", "5", "100000", "0", "-1", _HUGE, "9007199254740991", "9007199254740992", "5s", "1m"),
    "number ≥ 0": ("0", "1", "60000", "-1", _HUGE),
    "number 1 to 60000": ("1", "5000", "0", "60001"),
    "number 0 to 0.5": ("0", "0.1", "0.5", "0.6", "-0.1"),
    "number 0 to 65535": ("0", "80", "65535", "65536", "-1"),
    "map": ("{a: 1, b: {c: null}}", "{type: workspaceWrite, n: [null]}", "{}", "{token: x}", "{a: .nan}"),
    "map of state to number > 0": (
        *("{Todo: 2, ' In Progress ': 1}", "{a: null}", "{Todo: 0}", "{Todo: 1, TODO: 2}", "{' ': 1}"),
        *("{a: true, b: many}", f"{{a: {_HUGE}}}"),
    ),
    "text or map": ("never", "{a: {b: 1}}", "on-request", "{a: .inf}", "x", "''"),
    "list of text": ("[a, b]", "[' A ', a, '']", "[]", "[7]", "[a, null]", "[a, true, ' ']", "['-x', a, a]"),
    "list of relative paths": ("[.agents/skills]", "[]", "[a, ../b]", "[/etc]", "['']"),
    "list of variable names": ("[A, B_C]", "[]", "[a-b]", "['']", "[7]"),
    "map of name to text": ("{a: $B}", "{a: b}", "{a: 7}", "{}"),
    "map of variable name to text": ("{A: b}", "{A: $B, C: null}", "{A: 7}", "{a-b: c}", "{}"),
    "list of rules": (
        *(
            "[{use: codex, label: ' Bug'}]",
            "[{use: claude, state: x}, {use: acp, state: x, fallback: codex}]",
        ),
        *("[]", "[{use: claude}]", "[{label: bug}]", "[x]", "[{use: 7}]"),
        "[{use: fast, state: Todo, fallback: fast}]",
        "[{use: codex, state: Todo}, {use: claude, state: ' todo ', label: x, lable: y}]",
    ),
    "name of an agent": ("codex", "claude", "fast", "slow", "nobody", "command", "Codex"),
    "map of name to settings": ("{}", "{fast: {kind: codex}}", "{codex: {}}"),
}
_PROVIDER = (
    *("$LINEAR_API_KEY", "$UNSET", "$LINEAR_API_KYE", "$EMPTY", "owner/name", "https://h.test/api", "''"),
    *("http://127.0.0.1:9/x", "http://h.test", "https://h.test/?q=1", "true", "12", "0", "-1", "[a]", "off"),
    *(
        "{a: b}",
        "token",
        "repository",
        "me",
        "ABC",
        "null",
        "{}",
        "board",
        "../board",
        "[{id: 1}]",
        "ann@h.test",
    ),
)
_KINDS = (
    "markdown", "memory", "linear", "github", "gitlab", "jira", "forgejo", "gitea", "asana", "redmine",
)  # fmt: skip
_PROVIDERS = {
    "linear": {"api_key": "s3cret-value", "project_slug": "billing-a1b2c3"},
    "github": {"token": "s3cret-value", "repo": "owner/name"},
    "gitlab": {"api_key": "$GITLAB_PAT", "project_path": "group/name"},
    "jira": {"base_url": "https://h.test", "email": "a@h.test", "api_token": "x-1", "project_key": "ABC"},
    "asana": {"api_key": "s3cret-value", "project_gid": "12"},
    "forgejo": {"url": "https://h.test", "repo": "owner/name", "token": "$FORGEJO_TOKEN"},
    "redmine": {"base_url": "https://h.test", "api_key": "s3cret-value", "project": "12"},
    "memory": {"issues": "[{id: '1', identifier: M-1, title: x, state: Todo}]"},
}
_VARIABLES = {
    "HOME": ("/home/ann",),
    "TMPDIR": ("/var/tmp", "tmp"),
    "ROOT": ("/srv/root", "root", "~/root", " ", ""),
    "REPO": ("https://h.test/x.git", "repo", "-x", ""),
    "EMPTY": ("",),
    "SYMPHONY_STATE_DIR": ("/var/lib/symphony",),
    "SYMPHONY_AGENT_SKILLS_ENABLED": ("true", "false", " FALSE ", "", "1", "yes"),
    "SYMPHONY_POLLING_INTERVAL_MS": ("5",),
    "SYMPHONY_AGENT_MAX_TURNS": ("0",),
    **dict.fromkeys(
        ("LINEAR_API_KEY", "GITHUB_TOKEN", "GITLAB_PAT", "ASANA_PAT"), ("s3cret-value", " ", "ä")
    ),
    **dict.fromkeys(("JIRA_API_TOKEN", "REDMINE_API_KEY", "FORGEJO_TOKEN"), ("s3cret-value",)),
    "JIRA_EMAIL": ("ann@h.test",),
}


# --- random files ----------------------------------------------------------------------------------------


def cases(seed: int, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Workflow files and the variables to judge them with."""
    random = Random(seed)  # noqa: S311 - random files, no secrets
    for _ in range(count):
        mistakes = random.random() < 0.6
        yield _text(random, mistakes=mistakes), _variables(random, mistakes=mistakes)


def _variables(random: Random, *, mistakes: bool) -> dict[str, str]:
    names = [name for name in _VARIABLES if name == "HOME" or random.random() < 0.5]
    rare = "SYMPHONY_AGENT_SKILLS_ENABLED"
    if rare in names and random.random() < 0.7:
        names.remove(rare)
    return {name: random.choice(_VARIABLES[name]) if mistakes else _VARIABLES[name][0] for name in names}


def _text(random: Random, *, mistakes: bool) -> str:
    tree: Tree = {}
    kind = random.choice((*_KINDS, *["markdown"] * 20))
    _choose_tracker(random, tree, kind, mistakes=mistakes)
    for _ in range(random.choice((0, 1, 1, 2, 3, 5, 8))):
        _set_something(random, tree, mistakes=mistakes)
    if random.random() < 0.2:
        _name_an_agent(random, tree, mistakes=mistakes)
    for _ in range(random.choice((0, 0, 0, 1, 2)) if mistakes else 0):
        _spoil(random, tree)
    if mistakes and random.random() < 0.02:
        return "Do it."
    body = "Do it." if not mistakes or random.random() < 0.95 else "{{ issue.titel }}"
    return "\n".join(["---", *_lines(tree), "---", body, ""])


def _choose_tracker(random: Random, tree: Tree, kind: str, *, mistakes: bool) -> None:
    if not mistakes or random.random() < 0.97:
        _put(tree, "tracker.kind", random.choice(_WRONG) if mistakes and random.random() < 0.05 else kind)
    if kind in {"github", "gitlab", "forgejo"} and random.random() < 0.8:
        _put(tree, "tracker.provider.states", "{source: labels}")
    for key, value in _PROVIDERS.get(kind, {}).items() if random.random() < 0.8 else ():
        _put(tree, f"tracker.provider.{key}", value)
    if kind in _PROVIDERS and random.random() < 0.8:
        _put(tree, "tracker.active_states", "[Todo]")
        _put(tree, "tracker.terminal_states", "[Done]")
    for key in tracker_kind(kind).provider_keys if mistakes else ():
        if random.random() < 0.3:
            _put(tree, f"tracker.provider.{key}", random.choice(_PROVIDER))


def _put(tree: Tree, name: str, value: str) -> None:
    *sections, key = name.split(".")
    for section in sections:
        below = tree.setdefault(section, {})
        if isinstance(below, str):
            return
        tree = below
    tree[key] = value


def _set_something(random: Random, tree: Tree, *, mistakes: bool) -> None:
    key = random.choice([*KEYS.values()])
    if key.name in {"tracker.kind", "tracker.provider"}:
        return
    value = _value(random, key, mistakes=mistakes)
    if key.name == "agent.kind":
        value = random.choice(("codex", "claude", "acp", "command", "fast", "Claude", "nobody", value))
    _put(tree, key.name, value)


def _value(random: Random, key: Key, *, mistakes: bool) -> str:
    """A value that fits, as the first two of its shape do; with `mistakes` any."""
    choices: list[str] = re.findall(r"`(\w+)`", key.shape)
    values = choices or _GOOD[key.shape]
    if not mistakes:
        return random.choice(choices or values[:2])
    return random.choice(_WRONG if random.random() < 0.4 else values)


def _name_an_agent(random: Random, tree: Tree, *, mistakes: bool) -> None:
    name = random.choice(("fast", "slow", *(("codex", "Fast", "-x", "'a b'") if mistakes else ())))
    kind = random.choice(("codex", "claude", "acp", "command"))
    at = f"agents.{name}"
    if random.random() < 0.95:
        wrong = mistakes and random.random() < 0.2
        _put(tree, f"{at}.kind", random.choice(("clade", "7", "''", "[x]")) if wrong else kind)
    own = [key for key in KEYS.values() if key.name.startswith(f"{kind}.")]
    for key in random.sample(own, random.randrange(4)):
        _put(tree, f"{at}.{key.name.split('.')[1]}", _value(random, key, mistakes=mistakes))
    if mistakes and random.random() < 0.2:
        _put(tree, f"{at}.modle", "x")
    if random.random() < 0.7:
        _put(tree, random.choice(("agent.kind", "agent.fallback")), name)


def _spoil(random: Random, tree: Tree) -> None:
    """One mistake of structure: a misspelt key, a section that is no map, a key in the wrong place."""
    key = random.choice([*KEYS])
    *sections, last = key.split(".")
    match random.randrange(7):
        case 0:
            place = random.randrange(len(last))
            _put(tree, ".".join([*sections, last[:place] + last[place + 1 :] or "x"]), "1")
        case 1:
            tree[sections[0] if sections else last] = random.choice(_WRONG)
        case 2:
            _put(tree, last, random.choice(("1", "x", "{a: 1}")))
        case 3:
            _put(tree, f"{random.choice([*tree] or ['agent'])}.{last}", random.choice(("1", "x", "[a]")))
        case 4:
            _put(tree, f"tracker.{random.choice(('api_key', 'project_slug', 'token', 'assignee'))}", "$EMPTY")
        case 5:
            _put(tree, key, random.choice(_SECRETS))
        case _:
            tree[random.choice(("poling", "trackers", "Agent", "zzz", "skills"))] = "{}"


def _lines(tree: Tree, depth: int = 0) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, str):
            yield f"{'  ' * depth}{key}: {value}"
        else:
            yield f"{'  ' * depth}{key}:"
            yield from _lines(value, depth + 1)


# --- facts -----------------------------------------------------------------------------------------------


LATER_SECTIONS = frozenset({"forge", "rehearse", "review", "tracing", "verify"})
"""Sections that the program did not have when the facts were recorded."""

LATER_KEYS = frozenset({"carrier", "fetch_stall_timeout_ms", "push_stall_timeout_ms", "ray_labels"})
"""Keys that it did not have, and could not suggest, either."""


def facts(text: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What the program says of one file, without its sentences; values that are the default are left out."""
    data = text.encode()
    file = WorkflowFile(path=FILE, data=data)
    judged = judge(file, environment=environment, acknowledged=None)
    return {
        "accepted": judged.workflow is not None,
        "values": _values(judged.sections),
        "remains": sorted(judged.partial_sections),
        "failures": sorted(_told(one.category, one) for one in judged.failures),
        "warnings": sorted(_told(one.code, one) for one in judged.warnings),
        "sections": sorted(judged.sections.keys() - LATER_SECTIONS),
        "agents": {name: _agent(agent) for name, agent in judged.agents.items()},
        "named": judged.workflow and _shown(judged.workflow.settings.agents),
        "variables": judged.workflow and sorted(judged.workflow.variables),
    }


def _told(code: str, said: Any) -> list[str]:
    """Code, key, line, and the spelling or variable that was suggested."""
    unknown = re.match(r'unknown (?:key|section) "(.*)" is ignored', said.message)
    key = unknown[1] if unknown else said.message.split(" ", 1)[0].rstrip(":")
    meant = re.match(r'did you mean "?([^",? ]+)', said.hint or "")
    return [
        str(code),
        key,
        (said.where or "").rpartition(":")[2],
        meant[1] if meant and meant[1] not in LATER_KEYS else "",
    ]


def _values(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The values of sections that are right in themselves, whatever is wrong with others."""
    shown = {}
    for name in KEYS:
        section, *keys = name.split(".")
        if section in sections:
            shown[name] = _shown(reduce(getattr, keys, sections[section]))
    return {name: value for name, value in shown.items() if value != _default(name)}


def _default(name: str) -> Any:
    default = KEYS[name].default
    if default is not None and re.fullmatch(r"-?\d+|true|false|\[\]|\{\}", default):
        return json.loads(default)
    return default


def _agent(agent: Any) -> dict[str, Any]:
    keys = [key for key in KEYS if key.startswith(f"{agent.kind}.")]
    values = {key: _shown(getattr(agent.settings, key.split(".")[1])) for key in keys}
    changed = {key: value for key, value in values.items() if value != _default(key)}
    return {"kind": agent.kind, "own": sorted(agent.own), "values": changed}


def _shown(value: Any) -> Any:
    match value:
        case Secret():
            return {"a secret": value.reveal()}
        case Path():
            state = str(Path("~/.local/state").expanduser())
            return str(value).replace(str(Path.cwd()), "<cwd>").replace(state, "<state>")
        case dict():
            return {key: _shown(item) for key, item in value.items()}
        case list() | tuple():
            return [_shown(item) for item in value]
        case _ if hasattr(value, "use"):  # a rule
            return {name: getattr(value, name) for name in ("use", "label", "state", "fallback")}
        case _:
            return str(value) if isinstance(value, float) else value


def recorded() -> list[Case]:
    """The files with the facts that were told of them when they were recorded.

    Files that name hosts are left out: the program refused them then.
    """
    cases: list[Case] = json.loads(gzip.decompress(DATA.read_bytes()))
    refused = ("invalid_workflow_config", "worker.ssh_hosts")
    return [case for case in cases if all(tuple(one[:2]) != refused for one in case["facts"]["failures"])]


def record() -> None:
    """Judge the recorded files anew and keep the facts."""
    found = [{**case, "facts": facts(case["text"], case["environment"])} for case in recorded()]
    packed = json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
    DATA.write_bytes(gzip.compress(packed, mtime=0))


if __name__ == "__main__":
    record()
