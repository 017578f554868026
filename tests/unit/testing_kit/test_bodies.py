import gzip
import io
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.model_server.bodies import BodyError, read_body


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"


@given(st.lists(st.binary(min_size=1)), st.sampled_from(["identity", "gzip", "deflate"]))
def test_chunks_and_encodings_give_the_body_back(parts: list[bytes], encoding: str) -> None:
    body = b"".join(parts)
    raw = {"identity": body, "gzip": gzip.compress(body), "deflate": zlib.compress(body)}[encoding]
    pieces = [raw[:3], raw[3:]] if len(raw) > 3 else [raw] if raw else []
    headers = {"transfer-encoding": "chunked", "content-encoding": encoding}
    stream = io.BytesIO(chunked(pieces) + b"next")
    assert read_body(headers, stream) == body
    assert stream.read() == b"next"


def test_a_length_is_kept() -> None:
    stream = io.BytesIO(b"bodynext")
    assert read_body({"content-length": "4"}, stream) == b"body"
    assert read_body({}, stream) == b""


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"transfer-encoding": "chunked"}, "malformed chunk size b'zz"),
        ({"content-length": "2", "content-encoding": "zstd"}, "unknown content-encoding 'zstd'"),
    ],
)
def test_what_cannot_be_read_is_said(headers: dict[str, str], said: str) -> None:
    with pytest.raises(BodyError, match=said):
        read_body(headers, io.BytesIO(b"zz\r\n"))
