"""What is typed on pages and not sent: who gets it back, how much is kept, and when it is forgotten."""

import httpx
import pytest

from harness.asking import TOKEN, asking, signed_in
from harness.pages import DemoOperator
from symphony.api.access import Access
from symphony.api.sign_in import BrowserSignIn
from symphony.api.typed import MAX_BROWSERS, MAX_CHARS, MAX_PLACES, SETTING, TypedTexts


def test_a_browser_gets_its_own_text_and_what_a_former_sign_in_left() -> None:
    texts = TypedTexts()
    texts.keep("comment:SYM-1", "mine", "ann", "s1")
    texts.keep("comment:SYM-1", "theirs", "bob", "s1")
    assert texts.of("ann", "s1") == {"comment:SYM-1": "mine"}
    assert texts.of("cleo", "s1") == {}, "the others are still at it"
    assert texts.of("cleo", "s2") == {"comment:SYM-1": "theirs"}, "the newest of those that cannot come back"
    texts.keep("comment:SYM-1", "", "cleo", "s2")
    assert texts.of("dora", "s3") == {}, "it was sent"


def test_a_restart_keeps_texts_and_a_broken_value_is_dropped() -> None:
    settings: dict[str, str] = {"other": "{}", f"{SETTING}broken": "{"}

    def record(name: str, value: str | None) -> None:
        settings.pop(name, None)
        if value is not None:
            settings[name] = value

    first = TypedTexts()
    first.begin({}, record)
    first.keep("new:title", "A title", "ann", "s1")
    second = TypedTexts()
    second.begin(dict(settings), record)
    assert second.of("ann", "s2") == {"new:title": "A title"}
    assert [one.name for one in second.records()] == [f"{SETTING}new:title"]
    second.keep("new:title", "", "ann", "s2")
    assert set(settings) == {"other"}


def test_texts_are_bounded() -> None:
    texts = TypedTexts()
    for number in range(MAX_BROWSERS + 1):
        texts.keep("x", f"{number}", f"b{number}", "s")
    assert texts.of("b0", "s") == {}
    assert texts.of("b1", "s") == {"x": "1"}
    for number in range(MAX_PLACES):
        texts.keep(f"p{number}", "t", "ann", "s")
    assert len(texts.records()) == MAX_PLACES
    assert "x" not in texts.of("b1", "s")
    texts.keep("never", "", "ann", "s")
    assert len(texts.records()) == MAX_PLACES


@pytest.mark.asyncio
async def test_a_text_survives_a_sign_out_and_is_forgotten_once_it_is_sent() -> None:
    operator, sign_in = DemoOperator(), BrowserSignIn()
    access = Access.tcp("127.0.0.1", TOKEN, sign_in)

    async def ask(typed: str | None = None, **given: str) -> httpx.Response:
        """By a browser that signs in now: keep a text, post another form, or ask for what is kept."""
        headers = signed_in(sign_in)
        csrf = sign_in.csrf(headers["cookie"].partition("=")[2])
        async with asking(operator, access, headers=headers) as client:
            if typed is not None:
                given = {"place": "comment:WEB-131", "text": typed}
                return await client.post("/actions/keep-text", data={"csrf": csrf, **given})
            if given:
                return await client.post("/actions/comment", data={"csrf": csrf, **given})
            return await client.get("/typed")

    assert (await ask("Half a \r\nthought")).status_code == 204
    assert (await ask()).json() == {}, "of another browser, which may go on"
    sign_in.sign_out()
    assert (await ask()).json() == {"comment:WEB-131": "Half a \nthought"}
    await ask(issue="WEB-131", text="Half a thought, and the other half")
    assert (await ask()).json() == {}
    assert (await ask("x" * (MAX_CHARS + 1))).status_code == 400
    async with asking(operator, access, headers=signed_in(sign_in)) as client:
        refused = await client.post("/actions/keep-text", data={"csrf": "x", "place": "p", "text": "t"})
        assert refused.status_code == 403
    async with asking(operator, Access.tcp("127.0.0.1", TOKEN, sign_in, public_reads=True)) as reader:
        assert (await reader.get("/typed")).json() == {}
