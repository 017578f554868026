"""What is typed on pages and not sent: who gets it back, how much is kept, and when it is forgotten."""

import httpx
import pytest
from anyio.lowlevel import checkpoint

from harness.asking import TOKEN, asking, signed_in
from harness.pages import DemoOperator
from symphony.api.access import Access
from symphony.api.sign_in import BrowserSignIn
from symphony.api.typed import MAX_BROWSERS, MAX_CHARS, MAX_PLACES, SETTING, TypedTexts

PLACE = "comment:SYM-1"


def test_a_browser_gets_its_own_text_and_is_offered_what_a_former_sign_in_left() -> None:
    texts = TypedTexts()
    texts.keep(PLACE, "of ann", "ann", "s1")
    texts.keep(PLACE, "of bob", "bob", "s1")
    assert (texts.of("ann"), texts.of("cleo")) == ({PLACE: "of ann"}, {})
    assert texts.left("s1") == {}, "both are still at it"
    assert texts.of("cleo") == {}
    assert texts.left("s2") == {PLACE: "of bob"}, "the newest of those that cannot come back"


def test_what_a_former_sign_in_left_stays_until_a_browser_goes_on_with_it() -> None:
    texts = TypedTexts()
    texts.keep(PLACE, "of ann", "ann", "s1")
    texts.keep(PLACE, "of cleo", "cleo", "s2")
    texts.keep(PLACE, "", "cleo", "s2")
    assert texts.left("s2") == {PLACE: "of ann"}, "cleo has sent a text, which is not that of ann"
    texts.keep(PLACE, "of ann", "dora", "s2")
    assert (texts.of("dora"), texts.left("s2")) == ({PLACE: "of ann"}, {})
    texts.keep(PLACE, "of ann", "eve", "s2")
    assert texts.of("dora") == {PLACE: "of ann"}, "only what is left can be taken over"


def test_a_restart_keeps_texts_and_a_broken_value_is_dropped() -> None:
    settings: dict[str, str] = {"other": "{}", f"{SETTING}broken": "{"}

    def record(name: str, value: str | None) -> None:
        settings.pop(name, None)
        if value is not None:
            settings[name] = value

    first = TypedTexts()
    first.begin({}, record, checkpoint)
    first.keep("new:title", "A title", "ann", "s1")
    second = TypedTexts()
    second.begin(dict(settings), record, checkpoint)
    assert second.left("s2") == {"new:title": "A title"}
    assert [one.name for one in second.records()] == [f"{SETTING}new:title"]
    second.keep("new:title", "A title", "bea", "s2")
    second.keep("new:title", "", "bea", "s2")
    assert set(settings) == {"other"}


def test_texts_are_bounded() -> None:
    texts = TypedTexts()
    for number in range(MAX_BROWSERS + 1):
        texts.keep("x", f"{number}", f"b{number}", "s")
    assert texts.of("b0") == {}
    assert texts.of("b1") == {"x": "1"}
    for number in range(MAX_PLACES):
        texts.keep(f"p{number}", "t", "ann", "s")
    assert len(texts.records()) == MAX_PLACES
    assert "x" not in texts.of("b1")
    texts.keep("never", "", "ann", "s")
    assert len(texts.records()) == MAX_PLACES


@pytest.mark.asyncio
async def test_a_text_survives_a_sign_out_and_is_no_other_persons() -> None:
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
    nothing: dict[str, dict[str, str]] = {"own": {}, "left": {}}
    assert (await ask()).json() == nothing, "of another browser, which may go on"
    sign_in.sign_out()
    assert (await ask()).json() == {"own": {}, "left": {"comment:WEB-131": "Half a \nthought"}}
    await ask(issue="WEB-131", text="Of another person")
    assert (await ask()).json() == {"own": {}, "left": {"comment:WEB-131": "Half a \nthought"}}
    assert (await ask("x" * (MAX_CHARS + 1))).status_code == 400
    async with asking(operator, access, headers=signed_in(sign_in)) as client:
        refused = await client.post("/actions/keep-text", data={"csrf": "x", "place": "p", "text": "t"})
        assert refused.status_code == 403
    async with asking(operator, Access.tcp("127.0.0.1", TOKEN, sign_in, public_reads=True)) as reader:
        assert (await reader.get("/typed")).json() == nothing
