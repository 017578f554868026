"""One malformed record hides no other: pull requests. Issues: `unit/trackers/contract/test_base_reads.py`."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from contract.forges import ForgeDesk
from contract.repository import STRANGER, WRITER
from contract.vendor import Vendor
from symphony.domain import Category, CheckState, ReviewState, ServiceError
from symphony.http import RateLimiters, RawResponse, Send
from symphony.services.forges import FORGES
from symphony.services.pulls import Forge

pytestmark = pytest.mark.asyncio

BROKEN = "broken"


def spoiled(value: Any) -> Any:
    """Every text `broken`, and the name of a stranger, as a list, which no field of a record may be."""
    match value:
        case dict():
            return {key: spoiled(each) for key, each in value.items()}
        case list():
            return [spoiled(each) for each in value]
        case _:
            return [BROKEN] if value in {BROKEN, STRANGER} else value


class Spoiling:
    """A transport that spoils what the service sends."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        async with self._vendor.session(base) as own:

            async def send(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> RawResponse:
                reply = await own(method, address, headers, content)
                body = spoiled(json.loads(reply.content)) if reply.content else None
                return replace(reply, content=json.dumps(body).encode() if body is not None else b"")

            yield send


@pytest.fixture
def forge(desk: ForgeDesk) -> Forge:
    return FORGES[desk.kind](
        desk.repository.name,
        desk.vendor.secret,
        url=desk.vendor.base,
        transport=Spoiling(desk.vendor),
        rate_limiters=RateLimiters(),
        now_ms=desk.clock.now_ms,
        sleep=desk.clock.sleep,
    )


async def test_a_malformed_one_is_named_and_the_others_are_told_without_it(
    desk: ForgeDesk, forge: Forge
) -> None:
    for number, title in enumerate(["sound", BROKEN, "sound too"], 1):
        desk.repository.open(f"b{number}", title=title)
    for _ in range(2):
        with pytest.raises(ServiceError) as caught:
            await forge.observe([1, 2, 3])
        assert caught.value.culprits == {"2"}
        assert caught.value.failure.category is Category.FORGE
        assert caught.value.failure.hint
        seen = await forge.observe([1, 3])
        assert {number: pull.title for number, pull in seen.items()} == {1: "sound", 3: "sound too"}
        assert all(pull.complete for pull in seen.values())


async def test_all_malformed_ones_are_named_together(desk: ForgeDesk, forge: Forge) -> None:
    for number in (1, 2):
        desk.repository.open(f"b{number}", title=BROKEN)
    with pytest.raises(ServiceError) as caught:
        await forge.observe([1, 2])
    assert caught.value.culprits == {"1", "2"}


async def test_one_that_is_corrected_is_seen_again(desk: ForgeDesk, forge: Forge) -> None:
    pull = desk.repository.open("b", title=BROKEN)
    with pytest.raises(ServiceError):
        await forge.observe([1])
    pull.title, pull.updated = "sound", desk.repository.now()
    assert (await forge.observe([1]))[1].title == "sound"


async def test_a_malformed_comment_hides_no_other_and_is_no_complete_snapshot(
    desk: ForgeDesk, forge: Forge
) -> None:
    pull = desk.repository.open("b")
    for body in ("first", BROKEN, "last"):
        desk.repository.say(pull, WRITER, body)
    seen = (await forge.observe([1]))[1]
    assert [comment.body for comment in seen.comments] == ["first", "last"]
    assert not seen.complete


async def test_a_malformed_check_hides_no_other_and_is_no_complete_snapshot(
    desk: ForgeDesk, forge: Forge
) -> None:
    pull = desk.repository.open("b")
    for name in ("lint", BROKEN, "test"):
        desk.repository.check(pull, name, CheckState.PASSED, required=name != BROKEN)
    seen = (await forge.observe([1]))[1]
    assert [check.name for check in seen.checks if check.name != "pipeline"] == ["lint", "test"]
    assert not seen.complete


async def test_a_malformed_thread_hides_no_other_and_is_no_complete_snapshot(
    desk: ForgeDesk, forge: Forge
) -> None:
    pull = desk.repository.open("b")
    for line, body in enumerate(("first", BROKEN, "last"), 1):
        desk.repository.remark(pull, WRITER, body, line=line)
    seen = (await forge.observe([1]))[1]
    assert [thread.comments[0].body for thread in seen.threads] == ["first", "last"]
    assert not seen.complete


async def test_a_malformed_file_hides_no_other_and_is_no_complete_snapshot(
    desk: ForgeDesk, forge: Forge
) -> None:
    desk.repository.open("b").files = ["a.py", BROKEN, "b.py"]
    seen = (await forge.observe([1]))[1]
    assert seen.files == ("a.py", "b.py")
    assert not seen.complete


async def test_a_malformed_review_hides_no_other_and_is_no_complete_snapshot(
    desk: ForgeDesk, forge: Forge
) -> None:
    pull = desk.repository.open("b")
    for login in (WRITER, STRANGER):
        desk.repository.review(pull, login, ReviewState.APPROVED)
    seen = (await forge.observe([1]))[1]
    assert [review.author.login for review in seen.reviews] == [WRITER]
    assert not seen.complete


async def test_a_malformed_one_of_another_branch_does_not_hide_that_of_ours(
    desk: ForgeDesk, forge: Forge
) -> None:
    desk.repository.open("other", title=BROKEN)
    desk.repository.open("ours", title="sound")
    assert [pull.number for pull in await forge.find("ours")] == [2]
    assert list(await forge.find_onto("none")) == []


async def test_a_malformed_one_of_our_branch_is_not_taken_for_none(desk: ForgeDesk, forge: Forge) -> None:
    desk.repository.open("ours", title=BROKEN)
    with pytest.raises(ServiceError) as caught:
        await forge.find("ours")
    assert caught.value.failure.category is Category.FORGE
