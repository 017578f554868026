"""A secret, wherever it stands in what comes in, stands in nothing that goes out."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import assume, example, given
from hypothesis import strategies as st
from typing_extensions import override

from harness.scheduling import make_failure
from symphony.domain import Redaction, plain_text
from symphony.observability.logs import configure
from symphony.observability.redaction import masked

pytestmark = pytest.mark.conformance("O-7")

SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40).filter(
    lambda text: text.strip("*") != ""
)
WORDS = st.text(max_size=12)
HIDING = ("", " ", "\x1b[31m", "\u200b", "\x00", "'", '"', "\\", "\n", "://", "=", "%")


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


class Foreign:
    """A value that only has a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @override
    def __str__(self) -> str:
        return self._text


def shapes(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values as they come from trackers, agents and our own code, with the leaf somewhere in them."""
    keys = st.sampled_from(["message", "title", "labels", "inner"])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.tuples(inner, WORDS),
            st.dictionaries(keys, inner, min_size=1, max_size=3),
            leaf.map(lambda text: {text: 1}),
        ),
        max_leaves=5,
    )


@st.composite
def leaking(draw: st.DrawFn) -> tuple[str, Any]:
    """A secret, and a value that holds it at some depth, in some wrapping, between other words."""
    secret = draw(SECRETS)
    around = draw(WORDS) + draw(st.sampled_from(HIDING)), draw(st.sampled_from(HIDING)) + draw(WORDS)
    text = secret.join(around)
    wrapped = draw(st.sampled_from([str, Foreign, ValueError, str.encode]))
    value = draw(shapes(st.just(text)))
    return secret, draw(st.sampled_from([value, [value, _wrap(wrapped, text)], _wrap(wrapped, text)]))


def _wrap(kind: Any, text: str) -> Any:
    return text.encode("utf-8", "replace") if kind is str.encode else kind(text)


def texts(value: object) -> Iterator[str]:
    """Every text of a JSON value, keys included."""
    match value:
        case dict():
            for key, inner in value.items():
                yield str(key)
                yield from texts(inner)
        case list():
            for inner in value:
                yield from texts(inner)
        case _:
            yield str(value)


@given(leaking())
@example(("correct-horse", {"correct-horse": 1}))
@example(("it's-a-secret", ValueError("it's-a-secret")))
@example(("back\\slash-secret", b"back\\slash-secret"))
def test_no_log_line_holds_a_secret_in_any_rendering(leak: tuple[str, Any]) -> None:
    secret, value = leak
    for as_json in (True, False):
        out = io.StringIO()
        configure(stream=out, as_json=as_json, redaction=Redaction([secret]))
        structlog.contextvars.clear_contextvars()
        with structlog.contextvars.bound_contextvars(issue_id=str(value)):
            structlog.get_logger().info("run_ended", reason=value, session_id=str(value))
        shown = out.getvalue()
        assert secret not in shown
        if as_json:
            assert not any(secret in text for text in texts(json.loads(shown)))


@given(leaking())
def test_no_document_holds_a_secret(leak: tuple[str, Any]) -> None:
    secret, value = leak
    shown = masked({"running": [value], "last_message": value}, Redaction([secret]).text)
    assert not any(secret in text for text in texts(json.loads(json.dumps(shown))))


@given(st.one_of(SECRETS, st.text(min_size=8, max_size=20)), WORDS)
@example("-----BEGIN KEY-----\nMIIE/\\x\n-----END KEY-----\n", "body: ")
def test_a_secret_is_found_inside_the_quotes_of_another_language(secret: str, before: str) -> None:
    assume(len("".join(plain_text(secret).split())) >= 8)  # shorter values would mask ordinary words
    redaction = Redaction([secret])
    for quoted in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        inner = plain_text(quoted[1:-1])
        assert inner not in redaction.text(before + quoted)


@given(SECRETS, WORDS, WORDS)
def test_no_failure_holds_a_secret(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    failure = Redaction([secret]).failure(make_failure(text, hint=text, where=text))
    assert secret not in failure.line + (failure.hint or "") + (failure.where or "")
