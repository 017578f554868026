"""The Liquid environment of prompts: strict, without files, and bounded in input, output and time (PR1, PR9).

The library bounds the depth of blocks, the output and the size of variables. What it leaves open is closed
here: loops that follow each other, filters whose result is much larger than their input, ranges that are
spelled in ten characters and hold a billion numbers, and text on which its lexer takes quadratic time.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from liquid import BoundTemplate, Environment, RenderContext, StrictUndefined
from liquid.exceptions import LiquidError, LiquidSyntaxError, ResourceLimitError
from liquid.output import LimitedStringIO
from liquid.token import TOKEN_TAG, Token
from liquid.undefined import UNDEFINED
from typing_extensions import override

from symphony.domain.fence import fence

__all__ = [
    "FILE_TAGS",
    "MAX_OUTPUT_BYTES",
    "RENDER_LIMIT_S",
    "BoundedEnvironment",
    "check_markup",
    "render_bounded",
]

MAX_SOURCE_CHARS: Final = 256 * 1024
MAX_MARKUP_CHARS: Final = 4096
MAX_BLANK_RUN: Final = 256
MAX_OUTPUT_BYTES: Final = 512 * 1024
MAX_VALUE_SIZE: Final = 512 * 1024
MAX_ITEMS: Final = 5_000
MAX_LOOP_ITERATIONS: Final = 20_000
MAX_ROUND_DIGITS: Final = 100
RENDER_LIMIT_S: Final = 2.0

FILE_TAGS: Final = frozenset({"include", "render"})
"""Tags that would read another template; a prompt is one file, so they do not exist here."""

_OPENING = re.compile(r"\{\{|\{%-?\s*(raw|doc)\s*-?%\}|\{%")
_VERBATIM_END: Final = {
    "raw": re.compile(r"\{%-?\s*endraw\s*-?%\}"),
    "doc": re.compile(r"\{%-?\s*enddoc\s*-?%\}"),
}
_LONG_BLANK = re.compile(rf"\s{{{MAX_BLANK_RUN}}}")


class BoundedEnvironment(Environment):
    """Strict mode, strict variables, strict filters, no loader and no tags that would need one."""

    local_namespace_limit = MAX_VALUE_SIZE

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, strict_filters=True)
        self.add_filter("fence", fence)
        for name in FILE_TAGS:
            del self.tags[name]

    @override
    def error(
        self, exc: type[LiquidError] | LiquidError, msg: str | None = None, token: Token | None = None
    ) -> None:
        """Raise; an error at the end of an expression, which has no place, points at its tag instead."""
        if isinstance(exc, LiquidError) and exc.token and exc.token.start_index < 0:
            exc.token = token
        super().error(exc, msg, token)


def check_markup(source: str) -> None:
    """Refuse text on which the lexer would be slow: markup that never closes, or that is absurdly long.

    One pass, linear in the length of `source`.

    Raises:
        LiquidSyntaxError: with a token that points at the offending markup.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise _syntax_error(f"the prompt is longer than {MAX_SOURCE_CHARS} characters", source, 0)
    position = 0
    while opening := _OPENING.search(source, position):
        start = opening.start()
        position = _closing(source, opening)
        if opening[1] is None:
            _check_length(source, start, position)


def _closing(source: str, opening: re.Match[str]) -> int:
    if opening[1] is not None:
        end = _VERBATIM_END[opening[1]].search(source, opening.end())
        missing, position = f"{{% end{opening[1]} %}}", end.end() if end else -1
    else:
        missing = "}}" if opening[0] == "{{" else "%}"
        found = source.find(missing, opening.end())
        position = found + len(missing) if found >= 0 else -1
    if position < 0:
        raise _syntax_error(f'"{opening[0]}" is never closed, expected "{missing}"', source, opening.start())
    return position


def _check_length(source: str, start: int, end: int) -> None:
    if end - start > MAX_MARKUP_CHARS:
        raise _syntax_error(f"a tag is longer than {MAX_MARKUP_CHARS} characters", source, start)
    if _LONG_BLANK.search(source, start, end):
        raise _syntax_error(f"a tag has {MAX_BLANK_RUN} blanks in a row", source, start)


def _syntax_error(message: str, source: str, index: int) -> LiquidSyntaxError:
    return LiquidSyntaxError(message, token=Token(TOKEN_TAG, "", index, source))


def render_bounded(
    template: BoundTemplate, variables: Mapping[str, object], *, clock: Callable[[], float]
) -> str:
    """Render with every limit in force.

    Args:
        template: parsed by a `BoundedEnvironment`.
        variables: the global names.
        clock: monotonic seconds.

    Raises:
        LiquidError: a rule or a limit was broken; other exceptions may come out of a filter.
    """
    context = _BoundedContext(template, variables, clock)
    output = LimitedStringIO(limit=MAX_OUTPUT_BYTES)
    template.render_with_context(context, output)
    return output.getvalue()


class _BoundedContext(RenderContext):
    """Watches the clock, counts loop rounds, and weighs what filters get and give."""

    __slots__ = ("_clock", "_deadline", "_rounds")

    def __init__(
        self, template: BoundTemplate, variables: Mapping[str, object], clock: Callable[[], float]
    ) -> None:
        super().__init__(template, globals=template.make_globals(variables))
        self._clock = clock
        self._deadline = clock() + RENDER_LIMIT_S
        self._rounds = 0

    @override
    def get(self, path: list[object], *, token: Token | None, default: object = UNDEFINED) -> object:
        self._check_time(token)
        return super().get(path, token=token, default=default)

    @override
    def raise_for_loop_limit(self, length: int = 1) -> None:
        self._check_time(None)
        self._rounds += length
        if self._rounds > MAX_LOOP_ITERATIONS:
            raise ResourceLimitError(f"more than {MAX_LOOP_ITERATIONS} loop rounds", token=None)

    @override
    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        function = super().filter(name, token)

        def bounded(left: object, *args: object, **kwargs: object) -> object:
            self._check_time(token)
            for value in (left, *args, *kwargs.values()):
                _check_size(value, token)
            _check_growth(name, left, args, token)
            result = function(left, *args, **kwargs)
            _check_size(result, token)
            return result

        return bounded

    def _check_time(self, token: Token | None) -> None:
        if self._clock() > self._deadline:
            raise ResourceLimitError(f"rendering took longer than {RENDER_LIMIT_S:g} s", token=token)


def _check_size(value: object, token: Token | None) -> None:
    match value:
        case str():
            size, limit, unit = len(value), MAX_VALUE_SIZE, "characters"
        case range():
            size, limit, unit = value.stop - value.start, MAX_ITEMS, "items"
        case list() | tuple() | dict():
            size, limit, unit = len(value), MAX_ITEMS, "items"
        case int():
            size, limit, unit = value.bit_length(), 8 * MAX_VALUE_SIZE, "bits"
        case _:
            return
    if size > limit:
        raise ResourceLimitError(f"a value of more than {limit} {unit}", token=token)


def _check_growth(name: str, left: object, args: Sequence[Any], token: Token | None) -> None:
    """Foresee the size of results that may be far larger than everything that went in."""
    first = args[0] if args else None
    if name == "replace" and len(args) > 1:
        text = str(left)
        size = len(text) + text.count(str(first)) * len(str(args[1]))
    elif name == "join" and isinstance(left, Sequence):
        size = len(left) * len(str(first))
    elif name == "round" and isinstance(first, int):
        size = MAX_VALUE_SIZE + 1 if abs(first) > MAX_ROUND_DIGITS else 0
    else:
        return
    if size > MAX_VALUE_SIZE:
        raise ResourceLimitError(f'filter "{name}" would give too large a value', token=token)
