"""What the server was last seen to answer, so that it need not send again what has not changed.

Bounded in count and bytes, least recently used first out. Only answers that carry a validator are kept, and
packed: lists of issues shrink to a tenth, while decoded they would take several times their size.
"""

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from symphony.trackers.http.model import Answer

__all__ = ["KnownAnswers"]

_OK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    answer: Answer
    packed: bytes
    validators: Mapping[str, str]


class KnownAnswers:
    """Answers by address, for one credential."""

    def __init__(self, *, max_entries: int = 512, max_bytes: int = 8 * 1024 * 1024) -> None:
        self._entries: OrderedDict[str, _Known] = OrderedDict()
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._bytes = 0

    def validators(self, address: str) -> Mapping[str, str]:
        """The headers that make a request conditional; empty where nothing is known."""
        known = self._entries.get(address)
        return {} if known is None else known.validators

    def confirmed(self, address: str, headers: Mapping[str, str]) -> Answer | None:
        """The known answer that a 304 confirms, with what the 304 says of limits; null where it is gone."""
        known = self._entries.get(address)
        if known is None:
            return None
        self._entries.move_to_end(address)
        body = msgspec.json.decode(zlib.decompress(known.packed))
        return replace(known.answer, body=body, headers={**known.answer.headers, **headers}, cached=True)

    def keep(self, answer: Answer, content: bytes) -> None:
        """Remember an answer that was made of `content`, if it has a validator."""
        self._drop(answer.address)
        found = {"if-none-match": answer.headers.get("etag")}
        if found["if-none-match"] is None:
            found = {"if-modified-since": answer.headers.get("last-modified")}
        validators = {name: value for name, value in found.items() if value}
        if answer.status != _OK or answer.body is None or not validators:
            return
        packed = zlib.compress(content, 1)
        self._entries[answer.address] = _Known(
            answer=replace(answer, body=None), packed=packed, validators=validators
        )
        self._bytes += len(packed)
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, address: str) -> None:
        known = self._entries.pop(address, None)
        self._bytes -= 0 if known is None else len(known.packed)
