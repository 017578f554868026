"""Request bodies as HTTP clients send them: by length or in chunks, plain or compressed."""

import gzip
import zlib
from collections.abc import Mapping
from typing import Protocol

__all__ = ["BodyError", "ByteStream", "read_body"]


class ByteStream(Protocol):
    """What is needed of a connection."""

    def read(self, size: int, /) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        ...

    def readline(self) -> bytes:
        """Bytes up to and including the next newline."""
        ...


class BodyError(ValueError):
    """The body cannot be read; the message says why."""


def read_body(headers: Mapping[str, str], stream: ByteStream) -> bytes:
    """The decoded body of a request whose headers (names in lower case) have been read.

    Raises:
        BodyError: a chunk is malformed, or the encoding is none of the three.
    """
    if headers.get("transfer-encoding", "").lower() == "chunked":
        raw = _chunks(stream)
    else:
        raw = stream.read(int(headers.get("content-length", "0")))
    return _decoded(raw, headers.get("content-encoding", "identity").lower())


def _chunks(stream: ByteStream) -> bytes:
    parts: list[bytes] = []
    while size := _size(stream.readline()):
        parts.append(stream.read(size))
        stream.readline()
    while stream.readline().strip():
        pass
    return b"".join(parts)


def _size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError as error:
        raise BodyError(f"malformed chunk size {line[:20]!r}") from error


def _decoded(raw: bytes, encoding: str) -> bytes:
    match encoding:
        case "identity":
            return raw
        case "gzip":
            return gzip.decompress(raw)
        case "deflate":
            return zlib.decompress(raw)
        case _:
            raise BodyError(f"unknown content-encoding {encoding!r}")
