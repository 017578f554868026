"""Stores typed but unsent text of pages, so that neither a sign-out nor a restart loses it.

A page sends text while it is typed, and asks for it when it is opened. A browser gets its own texts. Signing
out and the end of the daemon replace the sign-in key, and no browser with a former key can come back. Only a
person knows whose texts those are. So every browser is offered them, and goes on with one when its user says
so. The storage of the browser is no alternative: it belongs to an address, and each key gives the pages
another address, which no other program can take over (see `sign_in`).
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from anyio.lowlevel import checkpoint
from msgspec import Struct

from symphony.journal.model import CodecError, SettingRecord, decode, encode

SETTING: Final = "typed:"
"""The prefix of the journal's settings with texts; the place of the text follows."""
MAX_CHARS: Final = 65_536
MAX_PLACES: Final = 200
MAX_BROWSERS: Final = 4


class TypedText(Struct, frozen=True, kw_only=True):
    """A text of one browser, and the sign-in in which it was typed."""

    text: str
    browser: str
    sign_in: str
    at_wall_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedAt:
    """The texts of one place, the newest first."""

    texts: tuple[TypedText, ...] = ()


class TypedTexts:
    """Stores texts by place, such as `comment:SYM-7`; in the journal too, once `begin` was called.

    Attributes:
        recorded: waits until all texts so far are in the journal, or cannot be.
    """

    def __init__(self, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._places: dict[str, TypedAt] = {}
        self._record: Callable[[str, str | None], None] = lambda _, __: None
        self.recorded: Callable[[], Awaitable[None]] = checkpoint

    def begin(
        self,
        recovered: Mapping[str, str],
        record: Callable[[str, str | None], None],
        recorded: Callable[[], Awaitable[None]],
    ) -> None:
        """Take over the texts of the previous daemon; `record` stores a value for the next one."""
        self._record, self.recorded = record, recorded
        for name, value in recovered.items():
            if name.startswith(SETTING):
                try:
                    self._places.setdefault(name.removeprefix(SETTING), decode(value, TypedAt))
                except CodecError:
                    record(name, None)

    def records(self) -> tuple[SettingRecord, ...]:
        """All texts, for a journal that is recreated."""
        return tuple(
            SettingRecord(name=f"{SETTING}{place}", value=encode(at)) for place, at in self._places.items()
        )

    def of(self, browser: str) -> dict[str, str]:
        """The unsent texts of a browser, by place."""
        return self._found(lambda one: one.browser == browser)

    def left(self, sign_in: str) -> dict[str, str]:
        """The newest texts of former sign-ins, by place."""
        return self._found(lambda one: one.sign_in != sign_in)

    def _found(self, fits: Callable[[TypedText], bool]) -> dict[str, str]:
        found = {place: next(filter(fits, at.texts), None) for place, at in self._places.items()}
        return {place: one.text for place, one in found.items() if one is not None}

    def keep(self, place: str, text: str, browser: str, sign_in: str) -> None:
        """Store a text in place of the browser's own one there; an empty one removes them.

        With the text of a former sign-in, the browser goes on with that one.
        """
        at = self._places.pop(place, TypedAt())
        replaced = tuple(
            one for one in at.texts if one.browser == browser or (one.sign_in != sign_in and one.text == text)
        )
        left = tuple(one for one in at.texts if one not in replaced)
        if text:
            now = TypedText(text=text, browser=browser, sign_in=sign_in, at_wall_ms=self._wall_ms())
            left = (now, *left)[:MAX_BROWSERS]
        elif not replaced and not left:
            return
        self._keep(place, replace(at, texts=left))

    def _keep(self, place: str, at: TypedAt) -> None:
        if at.texts:
            self._places[place] = at
        self._record(f"{SETTING}{place}", encode(at) if at.texts else None)
        if len(self._places) > MAX_PLACES:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._record(f"{SETTING}{oldest}", None)
