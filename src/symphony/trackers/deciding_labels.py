"""Labels that have an effect, which agents must not set or remove with the raw tool.

A label has an effect if a setting names it (`Settings.deciding_labels`) or if it begins with `skill:`. It
chooses the next agent, phase, skills or landing, so only people may set it. In a request that writes labels
the guard checks every name, at any place and in any spelling, and looks ids up. It refuses a request whose
labels it cannot determine.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from symphony.domain import SKILL_LABEL_PREFIX, ToolResult, normalise_label
from symphony.http.fields import texts
from symphony.trackers.raw_tools import RestCall

_HINT = "people set the labels that choose agents, phases, skills and landings; other labels are allowed"


class DecidingLabels(Struct, frozen=True):
    """The labels with an effect by settings, besides `skill:…`.

    Attributes:
        names: the labels.
        scope: the end of a label's scope, if the service keeps one label per scope and issue. Setting another
            label of the scope then removes a deciding label.
    """

    names: frozenset[str] = frozenset()
    scope: str = ""

    def among(self, labels: Iterable[str]) -> frozenset[str]:
        """The deciding labels among these, case-folded.

        Services accept several names in one text, in any case.
        """
        known = {_folded(name) for name in self.names}
        scopes = tuple(filter(None, map(self._scope_of, known)))
        folded = {_folded(part) for label in labels for part in (label, *label.split(","))}
        return frozenset(
            name
            for name in folded
            if name in known or name.startswith(SKILL_LABEL_PREFIX) or self._scope_of(name) in scopes
        )

    def _scope_of(self, label: str) -> str:
        return label.rpartition(self.scope)[0] if self.scope else ""

    def problem(self, request: "LabelRequest", names: Sequence[str]) -> str | None:
        """Why a GraphQL request may not write labels, or `None`; `names` are the names of its label ids."""
        if changed := self.among((*request.texts, *names)):
            return f"only people set or remove {min(changed)[:80]!r}"
        return None if names or request.is_new else "the names of its labels are unknown"


def _folded(label: str) -> str:
    shown = (char for char in unicodedata.normalize("NFKC", label) if unicodedata.category(char) != "Cf")
    return normalise_label("".join(shown).casefold())


class LabelWrite(Struct, frozen=True, kw_only=True):
    """What a request says about labels.

    Attributes:
        names: names of labels, or texts that could be names.
        ids: ids of labels; a text of digits is also among the names.
        replaces: whether labels that are not named are removed.
    """

    names: tuple[str, ...]
    ids: tuple[str, ...]
    replaces: bool


def refusal(problem: str) -> ToolResult:
    """The answer to a request that may change a deciding label."""
    return ToolResult.error(problem, category="deciding_label", hint=_HINT)


# --- REST ------------------------------------------------------------------------------------------------

_METHOD_OVERRIDE = re.compile(r"_method|opt_method", re.IGNORECASE)


def label_write(call: RestCall, words: re.Pattern[str]) -> LabelWrite | None:
    """What a request of a REST API writes about labels; `None` if it writes none.

    Args:
        call: the request.
        words: matches whole path steps and parts of keys that are about labels.
    """
    query = (*call.query, *parse_qsl(call.path.partition("?")[2], keep_blank_values=True))
    if call.method == "GET" and not any(_METHOD_OVERRIDE.fullmatch(key) for key, _ in query):
        return None
    steps = [_decoded(step).strip() for step in call.steps]
    about = next((at for at, step in enumerate(steps) if words.fullmatch(step)), None)
    found = _Found(words, is_about_labels=about is not None)
    found.visit(call.body)
    for key, value in query:
        found.visit({key: int(value) if _is_number(value) else value})
    if about is None:
        return found.write if found.is_label_key_seen else None
    for step in steps[about + 1 :]:
        found.take(step)
    is_whole = about == len(steps) - 1
    found.replaces = found.replaces or (is_whole and call.method in {"PUT", "PATCH", "DELETE"})
    found.replaces = found.replaces and not (call.method == "POST" and is_whole)
    return found.write


class _Found:
    """Collects what a body says about labels."""

    def __init__(self, words: re.Pattern[str], *, is_about_labels: bool) -> None:
        self._words, self._is_about_labels = words, is_about_labels
        self._names: list[str] = []
        self._ids: list[str] = []
        self.replaces = self.is_label_key_seen = False

    @property
    def write(self) -> LabelWrite:
        return LabelWrite(names=tuple(self._names), ids=tuple(self._ids), replaces=self.replaces)

    def visit(self, value: Any, *, of_labels: bool = False, is_list: bool = False) -> None:
        match value:
            case Mapping():
                for key, inner in value.items():
                    about = self._words.search(str(key)) is not None
                    self.is_label_key_seen = self.is_label_key_seen or about
                    if about and not _names_one_change(str(key), inner):
                        self.replaces = True
                    self.visit(inner, of_labels=of_labels or about)
            case list() | tuple():
                for inner in value:
                    self.visit(inner, of_labels=of_labels, is_list=True)
            case str() if of_labels or self._is_about_labels:
                self.take(value)
            case int() if (of_labels or (self._is_about_labels and is_list)) and not isinstance(value, bool):
                self._ids.append(str(value))
            case _:
                pass

    def take(self, text: str) -> None:
        """A text that may be a name, several names, JSON with names, or an id."""
        self._names += [text, _decoded(text)]
        self._ids += [part.strip() for part in text.split(",") if _is_number(part.strip())]
        if text.lstrip()[:1] in {"[", "{", '"'}:
            try:
                inner = json.loads(text)
            except ValueError:
                return
            self.visit(inner, of_labels=True, is_list=True)


def _names_one_change(key: str, value: Any) -> bool:
    """Whether a key adds or removes labels and keeps the others: `add_labels`, or a list of operations."""
    if re.match(r"(?i)add|remove|new", key):
        return True
    operations = [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
    return bool(operations) and all(set(map(str, each)) <= {"add", "remove"} for each in operations)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _decoded(text: str) -> str:
    for _ in range(4):  # an intermediate server may decode it more than once
        text, before = unquote(text), text
        if text == before:
            break
    return text


# --- GraphQL ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'"""(?:\\"""|[^"]|"(?!""))*+"""|"(?:\\.|[^"\\\n\r])*+"|#[^\n\r]*+|[_A-Za-z][_0-9A-Za-z]*+|\S'
)
_ABOUT_LABELS = re.compile(r"label|template", re.IGNORECASE)  # a template has labels of its own
_BRACED = re.compile(r"\\u\{([0-9A-Fa-f]{1,8})\}")
_READS = frozenset({"label", "labels"})
"""Names that are fields of an answer; a mutation has a verb in its name."""
_OPERATIONS = frozenset({"query", "mutation", "subscription"})


class LabelRequest(Struct, frozen=True, kw_only=True):
    """A GraphQL request that writes labels.

    Attributes:
        texts: all its texts; names and ids of labels are among them.
        is_new: whether it only creates a label, which no issue has yet.
    """

    texts: tuple[str, ...]
    is_new: bool


def graphql_label_request(
    query: str, variables: object, *, single_changes: Collection[str], create: str
) -> LabelRequest | str | None:
    """What a GraphQL request says about labels, or why that is unclear; `None` if it writes none.

    Args:
        query: the document.
        variables: its variables.
        single_changes: the mutations that add or remove single labels, or create records with labels.
        create: the mutation that creates a label.
    """
    tokens = [token for token in _TOKEN.findall(query) if not token.startswith("#")]
    if "mutation" not in tokens:
        return None
    called = {
        name
        for before, name, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False)
        if after == "(" and name.isidentifier() and before not in {"@", *_OPERATIONS}
    } - _OPERATIONS
    arguments, depth = set(_keys(variables)), 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth:
            arguments.add(token)
    about = {name for name in (called - _READS) | arguments if name[:1] != '"' and _ABOUT_LABELS.search(name)}
    if not about:
        return None
    if any("template" in name.lower() for name in about):
        return "it names a template, which may have labels"
    called -= _READS
    if others := sorted(called - {*single_changes, create}):
        allowed = ", ".join((*single_changes, create))
        return f"it calls {others[0][:80]!r} and writes labels: change labels by {allowed} alone"
    literals = [_literal(token) for token in tokens if token.startswith('"')]
    return LabelRequest(texts=(*literals, *_texts(variables)), is_new=called == {create})


def _literal(token: str) -> str:
    if token.startswith('"""'):
        return token[3:-3].replace('\\"""', '"""').strip()
    try:
        return str(json.loads(_BRACED.sub(lambda match: json.dumps(chr(int(match[1], 16)))[1:-1], token)))
    except (ValueError, OverflowError):
        return token


def _keys(value: object) -> Iterator[str]:
    match value:
        case Mapping():
            for key, inner in value.items():
                yield str(key)
                yield from _keys(inner)
        case list():
            for inner in value:
                yield from _keys(inner)


def _texts(value: object) -> list[str]:
    match value:
        case Mapping():
            return [text for inner in value.values() for text in _texts(inner)]
        case list():
            return [text for inner in value for text in _texts(inner)]
        case _:
            return list(texts([value]))
