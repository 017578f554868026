"""Recognises prompts in other template languages, and converts their tags to Liquid.

The languages are Go's text/template, Handlebars and Jinja. Each tag is converted by itself, by its shape. A
person has to rewrite a tag that needs more than that.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from msgspec import Struct

from symphony.config.corrections import plain_name
from symphony.config.synonyms import ISSUE_FIELDS, ISSUES

_MAX_TAG_CHARS: Final = 4_096
_MAX_TAGS: Final = 1_000


class Dialect(StrEnum):
    """A template language, as people call it."""

    GO = "Go's text/template"
    HANDLEBARS = "Handlebars"
    JINJA = "Jinja"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """One tag: its offset in the text, its text, and its conversion to Liquid, or `None`."""

    index: int
    text: str
    liquid: str | None = None


class ForeignPrompt(Struct, frozen=True, kw_only=True):
    """The language of a prompt, and every tag of it that is not Liquid."""

    dialect: Dialect
    tags: Sequence[Tag]

    def convert(self, text: str, *, keep: bool = True) -> str:
        """The text with convertible tags in Liquid.

        Other tags stay if `keep` is true, else they are removed.
        """
        parts, end = [], 0
        for tag in self.tags:
            other = tag.text if keep else "\n" * tag.text.count("\n")
            parts += [text[end : tag.index], other if tag.liquid is None else tag.liquid]
            end = tag.index + len(tag.text)
        return "".join((*parts, text[end:]))


IsLiquid = Callable[[str], bool]
"""Whether a single tag can be read as Liquid; its block is assumed to be complete."""


def foreign_prompt(text: str, is_liquid: IsLiquid) -> ForeignPrompt | None:
    """The language of a prompt that is not Liquid; `None` if it has no tag of another language."""
    tags = [*_tags(text)]
    wrong = [tag for tag in tags if tag.text.startswith("{#") or not is_liquid(tag.text)]
    signs = {one: sum(_CLEAR[one].match(tag.text) is not None for tag in wrong) for one in Dialect}
    dialect = max(signs, key=lambda one: signs[one])
    if not signs[dialect]:
        return None
    is_wrong = {tag.index for tag in wrong}
    foreign = [tag for tag in tags if tag.index in is_wrong or _is_foreign(tag, dialect)]
    convert = _CONVERTERS[dialect]()
    converted = [replace(tag, liquid=_checked(convert(tag.text), is_liquid)) for tag in foreign]
    return ForeignPrompt(dialect=dialect, tags=converted) if converted else None


def _checked(liquid: str | None, is_liquid: IsLiquid) -> str | None:
    return liquid if liquid is not None and is_liquid(liquid) else None


# --- finding tags ----------------------------------------------------------------------------------------

_OPENINGS: Final = re.compile(r"\{\{\{|\{\{|\{%|\{#")
_CLOSINGS: Final[Mapping[str, str]] = {"{{{": "}}}", "{{": "}}", "{%": "%}", "{#": "#}"}
_RAW: Final = re.compile(r"\{%-?\s*(raw|comment)\s*-?%\}")


def _tags(text: str) -> Iterator[Tag]:
    """The tags in order; in time linear in the text. Raw blocks and comments are passed over."""
    position = 0
    for _ in range(_MAX_TAGS):
        opening = _OPENINGS.search(text, position)
        if opening is None:
            return
        closing = _CLOSINGS[opening[0]]
        end = text.find(closing, opening.end(), opening.end() + _MAX_TAG_CHARS)
        if end < 0:
            position = opening.end()
            continue
        tag = Tag(index=opening.start(), text=text[opening.start() : end + len(closing)])
        position = end + len(closing)
        if raw := _RAW.fullmatch(tag.text):
            end_tag = re.compile(rf"\{{%-?\s*end{raw[1]}\s*-?%\}}").search(text, position)
            position = end_tag.end() if end_tag else position
        else:
            yield tag


_GO_WORDS: Final = (
    "and|block|break|continue|define|else|end|eq|ge|gt|if|index|le|len|lt|ne|not|or|print|printf|range|"
    "template|with"
)
_CLEAR: Final[Mapping[Dialect, re.Pattern[str]]] = {
    Dialect.GO: re.compile(rf"\{{\{{-?\s*(?:\$?\.[A-Za-z]|\.\s|\$\w|/\*|end\s*-?\}}|(?:{_GO_WORDS})\s)"),
    Dialect.HANDLEBARS: re.compile(r"\{\{\{|\{\{~?\s*(?:[#/^>!@&]|else\s*~?\}\}|this\b)"),
    Dialect.JINJA: re.compile(
        r"\{#|\{%[-+]?\s*(?:elif|set|endset|macro|endmacro|block|endblock|extends|import|from|call|endcall|"
        r"filter|endfilter|with|endwith|do)\b"
        r"|\{[%{].*\bis\s+(?:not\s+)?(?:defined|undefined|none|None|string|mapping|iterable)\b"
        r"|\{%[-+]?\s*if\s+not\b|\{%[-+]?\s*if\b.*\band\s+not\b|\{[%{].*\bloop\."
        r"|\{[%{].*\|\s*\w+\(|\{\{.*\sif\s.*\selse\s|\{\{[^|}]*\sor\s"
        r"|\{\{.*\|\s*(?:tojson|trim|length|lower|upper|title|indent|list|int|string)\b",
        re.DOTALL,
    ),
}
"""Beginnings and parts of tags that occur in only one language."""

_LOOP: Final = re.compile(r"\bloop\.(?=\w)")
_ELSE: Final = re.compile(r"\{\{[-~]?\s*else\b.*\}\}", re.DOTALL)


def _is_foreign(tag: Tag, dialect: Dialect) -> bool:
    """Whether a tag that could be Liquid belongs to the other language: `{{ end }}`, `{{ loop.index }}`."""
    if dialect is Dialect.JINJA:
        return _LOOP.search(tag.text) is not None
    return bool(_CLEAR[dialect].match(tag.text) or _ELSE.match(tag.text))


# --- converting ------------------------------------------------------------------------------------------

_PATH: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_LITERAL: Final = re.compile(r"\"[^\"]*\"|'[^']*'|-?\d+(?:\.\d+)?|true|false|nil")
_COMPARISONS: Final = {"eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


def liquid_path(path: str) -> str:
    """A path with this program's names: `Issue.Title` becomes `issue.title`."""
    root, *rest = (plain_name(part) for part in path.split("."))
    root = "issue" if root in ISSUES else root
    if root == "run" and rest == ["attempt"]:
        return "attempt"
    if root == "issue" and rest:
        rest[0] = ISSUE_FIELDS.get(rest[0], rest[0])
    return ".".join((root, *rest))


def _not(value: str) -> str:
    """A negated condition; Liquid has no `not`, and an empty text counts as true."""
    return f"{value} == nil or {value} == false or {value} == blank"


def _inside(text: str) -> str:
    return text.strip("{}").strip("%" if text.startswith("{%") else "").strip("-~+").strip()


class _Go:
    """Go. All blocks end with the same word, so the kinds of open blocks are recorded."""

    def __init__(self) -> None:
        self._ends: list[str | None] = []
        self._items: list[str] = []
        self._index: str | None = None

    def __call__(self, text: str) -> str | None:
        word, _, rest = _inside(text).partition(" ")
        rest = rest.strip()
        if word in {"if", "range", "with", "block", "define"}:
            opening = self._opening(word, rest)
            self._ends.append(None if opening is None else "endfor" if word == "range" else "endif")
            return opening
        if word == "end":
            end = self._ends.pop() if self._ends else None
            if end == "endfor" and self._items:
                self._items.pop()
            return None if end is None else f"{{% {end} %}}"
        if word == "else":
            other = self._condition(rest.removeprefix("if ").strip()) if rest else ""
            if not rest:
                return "{% else %}" if self._ends and self._ends[-1] else None
            return None if other is None else f"{{% elsif {other} %}}"
        if text.startswith(("{{/*", "{{- /*")):
            return f"{{% comment %}}{_inside(text).strip('/* ')}{{% endcomment %}}"
        value = self._value(_inside(text))
        return None if value is None else f"{{{{ {value} }}}}"

    def _opening(self, word: str, rest: str) -> str | None:
        if word == "if":
            condition = self._condition(rest)
            return None if condition is None else f"{{% if {condition} %}}"
        found = re.fullmatch(r"(?:(?:\$(\w+)\s*,\s*)?\$(\w+)\s*:?=\s*)?(\S+)", rest)
        if word != "range" or found is None:
            return None
        values = self._value(found[3])
        if values is None:
            return None
        self._index = found[1]
        self._items.append(found[2] or "item")
        return f"{{% for {self._items[-1]} in {values} %}}"

    def _condition(self, text: str) -> str | None:
        words = text.split()
        if self._index is not None and text == f"${self._index}":
            return "forloop.first == false"
        if len(words) == 2 and words[0] == "not":  # noqa: PLR2004 - not X
            value = self._value(words[1])
            return None if value is None else _not(value)
        if len(words) == 3 and words[0] in {*_COMPARISONS, "and", "or"}:  # noqa: PLR2004 - eq X Y
            left, right = self._value(words[1]), self._value(words[2])
            if left is None or right is None:
                return None
            return f"{left} {_COMPARISONS.get(words[0], words[0])} {right}"
        return self._value(text)

    def _value(self, text: str) -> str | None:
        if _LITERAL.fullmatch(text):
            return text
        if text == ".":
            return self._items[-1] if self._items else None
        name = text.removeprefix("$").removeprefix(".")
        if text == name or not _PATH.fullmatch(name):
            return None
        return name if name in self._items else liquid_path(name)


class _Handlebars:
    """Handlebars. `this` is the item of the innermost loop. An end is convertible if its beginning is."""

    def __init__(self) -> None:
        self._ends: list[bool] = []
        self._items: list[str] = []

    def __call__(self, text: str) -> str | None:
        inside = _inside(text)
        word, _, rest = inside.partition(" ")
        if inside.startswith("!"):
            return f"{{% comment %}}{inside.strip('!- ')}{{% endcomment %}}"
        if word.startswith("#"):
            opening = self._opening(word, rest.strip())
            self._ends.append(opening is not None)
            return opening
        if word.startswith("/"):
            return self._end(word) if self._ends and self._ends.pop() else None
        if word in {"else", "^"}:
            other = self._value(rest.removeprefix("if ").strip()) if rest else ""
            block = "{% else %}" if not rest else None if other is None else f"{{% elsif {other} %}}"
            return block if self._ends and self._ends[-1] else None
        value = self._value(inside.removeprefix("&").strip())
        return None if value is None else f"{{{{ {value} }}}}"

    def _opening(self, word: str, rest: str) -> str | None:
        if word == "#each":
            return self._loop(rest)
        value = self._value(rest) if word in {"#if", "#unless"} else None
        return None if value is None else f"{{% {word[1:]} {value} %}}"

    def _end(self, word: str) -> str:
        if word == "/each":
            self._items.pop()
            return "{% endfor %}"
        return f"{{% end{word[1:]} %}}"

    def _loop(self, text: str) -> str | None:
        found = re.fullmatch(r"(\S+)(?:\s+as\s+\|\s*(\w+)(?:\s+\w+)?\s*\|)?", text)
        values = None if found is None else self._value(found[1])
        if found is None or values is None:
            return None
        self._items.append(found[2] or "item")
        return f"{{% for {self._items[-1]} in {values} %}}"

    def _value(self, text: str) -> str | None:
        if text in {"@index", "@first", "@last"}:
            return f"forloop.{text[1:]}0" if text == "@index" else f"forloop.{text[1:]}"
        this = self._items[-1] if self._items else None
        if text == "this" or text.startswith("this."):
            return None if this is None else f"{this}{text[4:]}"
        if not _PATH.fullmatch(text):
            return None
        return text if text.partition(".")[0] in self._items else liquid_path(text)


_JINJA_FILTERS: Final = {
    "length": "size",
    "count": "size",
    "lower": "downcase",
    "upper": "upcase",
    "title": "capitalize",
    "trim": "strip",
}
_TESTS: Final = (
    (re.compile(r"\b([\w.]+)\s+is\s+not\s+(?:none|None)\b"), r"\1"),
    (re.compile(r"\b([\w.]+)\s+is\s+defined\b"), r"\1"),
    (re.compile(r"\b([\w.]+)\s+is\s+(?:none|None)\b"), r"\1 == nil"),
    (re.compile(r"\b([\w.]+)\s+is\s+(?:not\s+defined|undefined)\b"), r"\1 == nil"),
    (re.compile(r"\bnot\s+(forloop\.\w+)"), r"\1 == false"),
    (re.compile(r"\bnot\s+([\w.]+)"), _not(r"\1")),
    (re.compile(r"(\"[^\"]*\"|'[^']*'|[\w.]+)\s+in\s+([\w.]+)"), r"\2 contains \1"),
)
_FILTER: Final = re.compile(r"\|\s*(\w+)(?:\(([^()]*)\))?")


class _Jinja:
    """Jinja. Most of it is Liquid too."""

    def __call__(self, text: str) -> str | None:
        inside = _inside(text)
        if text.startswith("{#"):
            return f"{{% comment %}}{inside.strip('#')}{{% endcomment %}}"
        inside = _FILTER.sub(self._filter, _LOOP.sub("forloop.", inside))
        if text.startswith("{{"):
            found = re.fullmatch(r"([\w.]+)\s+or\s+(\"[^\"]*\"|'[^']*')", inside)
            return f"{{{{ {found[1]} | default: {found[2]} }}}}" if found else f"{{{{ {inside} }}}}"
        word, _, rest = inside.partition(" ")
        if word in {"if", "elif", "elsif"}:
            for pattern, better in _TESTS:
                rest = pattern.sub(better, rest)
        better_word = {"elif": "elsif", "set": "assign"}.get(word, word)
        return f"{{% {better_word} {rest.strip()} %}}".replace("  %}", " %}")

    @staticmethod
    def _filter(found: re.Match[str]) -> str:
        name = _JINJA_FILTERS.get(found[1], found[1])
        return f"| {name}: {found[2].strip()}" if found[2] and found[2].strip() else f"| {name}"


_CONVERTERS: Final[Mapping[Dialect, type[_Go] | type[_Handlebars] | type[_Jinja]]] = {
    Dialect.GO: _Go,
    Dialect.HANDLEBARS: _Handlebars,
    Dialect.JINJA: _Jinja,
}
