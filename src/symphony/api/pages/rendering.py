"""Renders the templates of the pages.

Every value that a template prints is escaped for HTML, and its control and bidirectional characters are shown
as escapes: titles come from trackers and messages from agents.

This module imports Jinja2. The first request for a page imports this module in a thread, so that a daemon
without opened pages does not need the memory.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from symphony.api import formatting
from symphony.api.pages.views import ACTIONS, MOMENT_MARK, issue_path
from symphony.characters import visible
from symphony.domain import plural, without_codes

ASSETS: Final = {
    "app.css": "text/css",
    "app.js": "text/javascript",
    "idiomorph.min.js": "text/javascript",
}
"""The files that pages load, by name, with their types."""
_OUTCOME_ICONS: Final = {
    None: "running",
    "succeeded": "ready",
    "no_progress": "ended",
    "input_required": "question",
    "canceled": "ended",
    "interrupted": "retrying",
}
_DIGEST_CHARS: Final = 12
_MORE_THAN_SHOWN: Final = 100
_MAX_MARKDOWN_CHARS: Final = 100_000
_MAX_CACHED: Final = 256
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`|\\^{}]*[^\s<>\"'`|\\^{}.,:;!?)\]*_~]")


def render(template: str, **shown: object) -> str:
    """The HTML of a page, rendered with the values `shown`."""
    return _environment().get_template(template).render(shown)


@cache
def asset(name: str) -> bytes:
    """The content of one of `ASSETS`."""
    return resources.files(__package__).joinpath("static", name).read_bytes()


@cache
def asset_path(name: str) -> str:
    """The path of an asset; it changes with the content, so that browsers may keep what they have."""
    return f"/assets/{name}?v={sha256(asset(name)).hexdigest()[:_DIGEST_CHARS]}"


def icon_path(count: int) -> str:
    """The path of the icon of a page that shows this number."""
    return f"/assets/icon-{min(count, _MORE_THAN_SHOWN)}.svg"


@cache
def icon_file(count: int) -> bytes:
    """The icon of pages, with the number unless it is 0."""
    shown = f"{_MORE_THAN_SHOWN - 1}+" if count >= _MORE_THAN_SHOWN else str(count)
    return render("icon.svg", shown=shown if count else "").encode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("symphony.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ago=_ago,
        code=_code,
        anchor=lambda text: quote(text, safe=""),
        buttons=formatting.button_words,
        duration=formatting.duration,
        issue_path=issue_path,
        markdown=_markdown,
        number=lambda value: f"{value:,}",
        outcome_icon=lambda outcome: _OUTCOME_ICONS.get(outcome, "failed"),
        plural=plural,
        run_words=formatting.run_words,
        prose=_prose,
        tokens=formatting.tokens,
        usd=lambda value: f"${value:,.2f}",
        utc=lambda moment: moment.replace("T", " ").removesuffix("Z") + " UTC",
        web_url=_web_url,
        words=lambda code: code.replace("_", " "),
        plain=without_codes,
        event_words=formatting.event_words,
        overlap_words=formatting.overlap_words,
        stop_words=formatting.stop_words,
    )
    environment.globals.update(
        asset_path=asset_path, icon_path=icon_path, actions=ACTIONS, moment_mark=MOMENT_MARK
    )
    return environment


def _code(segments: Iterable[tuple[str, str]]) -> Markup:
    """The pieces of a line of code, each in an element with its classes."""
    return Markup("").join(
        Markup('<span class="{}">{}</span>').format(classes, visible(text))
        if classes
        else escape(visible(text))
        for classes, text in segments
    )


def _finalized(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


@pass_context
def _ago(context: Context, moment: str) -> str:
    """The time from a moment to now: `3 min ago`, `in 12 s`, `now`."""
    seconds = formatting.seconds_between(moment, context["now"])
    if seconds is None:
        return "?"
    if abs(seconds) < 1:
        return "now"
    return f"{formatting.duration(seconds)} ago" if seconds > 0 else f"in {formatting.duration(-seconds)}"


@lru_cache(maxsize=_MAX_CACHED)
def _prose(text: str) -> Markup:
    """Markdown of the tracker as HTML, with links to the web and nothing that loads by itself.

    A picture becomes a link to it. HTML in the text is shown as text, and so are links other than http and
    https. Headings are two levels lower than written.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: _web_url(url) is not None  # type: ignore[method-assign]  # its interface
    tokens = _blocks(parser, text)
    for token in tokens:
        if token.children is not None:
            token.children = list(_safe_links(token.children))
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - it escapes what it is given


def _blocks(parser: MarkdownIt, text: str) -> Sequence[Token]:
    """The parts of a text, with lower headings and without inline styles, which pages do not allow."""
    tokens = parser.parse(visible(text[:_MAX_MARKDOWN_CHARS]))
    for token in tokens:
        token.attrs.pop("style", None)
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1:]) + 2, 6)}"
    return tokens


def _safe_links(tokens: Sequence[Token]) -> Iterator[Token]:
    """The parts of a line, with pictures and bare addresses as links; a link shows where it leads."""
    inside = False
    for token in tokens:
        if token.type == "image":
            name = token.content or "picture"
            shown = f"[{name}]"
            yield from [_text(shown)] if inside else _link(str(token.attrs["src"]), shown)
        elif token.type == "text" and not inside:
            place = 0
            for found in _ADDRESS.finditer(token.content):
                yield _text(token.content[place : found.start()])
                yield from _link(found[0], found[0])
                place = found.end()
            yield _text(token.content[place:])
        else:
            if token.type in {"link_open", "link_close"}:
                inside = token.type == "link_open"
            if token.type == "link_open":
                token.attrs = _link_attributes(str(token.attrs["href"]))
            yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _link(address: str, shown: str) -> Iterator[Token]:
    yield Token("link_open", "a", 1, attrs=_link_attributes(address))
    yield _text(shown)
    yield Token("link_close", "a", -1)


def _link_attributes(address: str) -> dict[str, str | int | float]:
    return {"href": address, "title": address, "class": "external", "rel": "noopener noreferrer"}


def _markdown(text: str) -> Markup:
    """Markdown as HTML, without images and links; their addresses stay visible text.

    HTML in the text is shown as text. Headings are two levels lower than written.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link", "autolink"])
    tokens = _blocks(parser, text)
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - it escapes what it is given


def _web_url(url: str | None) -> str | None:
    """The address if a link to it is safe, else `None`."""
    try:
        return url if url and urlsplit(url).scheme in {"http", "https"} else None
    except ValueError:
        return None
