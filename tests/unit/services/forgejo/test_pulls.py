import pytest

from contract.forges import ForgeDesk, forge_desk
from contract.repository import WRITER
from contract.vendor import Given
from symphony.domain import PullState, ServiceError
from symphony.services.pulls import Landing

pytestmark = pytest.mark.asyncio


@pytest.fixture
def desk() -> ForgeDesk:
    return forge_desk("forgejo")


async def test_a_conflict_is_believed_when_it_is_seen_twice_at_one_head(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    pull.conflicts = True
    assert [(await desk.forge.observe([1]))[1].conflicts for _ in range(2)] == [None, True]

    desk.repository.push("b", pull)
    assert (await desk.forge.observe([1]))[1].conflicts is None
    pull.draft = True
    assert [(await desk.forge.observe([1]))[1].conflicts for _ in range(2)] == [None, None]


async def test_remarks_on_one_line_are_one_thread_and_get_their_answer_there(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    first = desk.repository.remark(pull, WRITER, "why?", line=3)
    desk.repository.remark(pull, WRITER, "and then?", line=3)

    seen = (await desk.forge.observe([1]))[1]

    (thread,) = seen.threads
    assert [comment.body for comment in thread.comments] == ["why?", "and then?"]
    await desk.forge.reply(seen, thread.id, "because")
    assert first.comments[-1].body == "because"
    with pytest.raises(ServiceError):
        await desk.forge.reply(seen, "0", "because")


async def test_there_is_no_merge_queue(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    with pytest.raises(ServiceError, match="queue"):
        await desk.forge.arm((await desk.forge.observe([1]))[1], Landing.QUEUE)
    assert pull.state is PullState.OPEN


async def test_a_token_that_may_not_see_rights_makes_nobody_a_writer(desk: ForgeDesk) -> None:
    desk.repository.say(desk.repository.open("b"), WRITER, "do this")
    desk.vendor.fail_next(
        Given(status=403, body={"message": "token does not have the scope", "url": "u"}), when="/assignees"
    )
    assert not (await desk.forge.observe([1]))[1].comments[0].author.can_write


async def test_a_state_that_nobody_knows_is_one_failure_that_names_it(desk: ForgeDesk) -> None:
    side = {"ref": "b", "sha": "c" * 40}
    record = {
        **dict.fromkeys(("title", "body", "html_url"), ""),
        "number": 1,
        "state": "locked",
        "user": {"login": WRITER},
        "head": side,
        "base": side,
        "merged": False,
        "mergeable": True,
        "labels": [],
    }
    desk.vendor.fail_next(Given(body=record), when="/pulls/1")
    with pytest.raises(ServiceError, match="locked"):
        await desk.forge.observe([1])


async def test_the_name_of_a_base_branch_stays_a_part_of_the_address(desk: ForgeDesk) -> None:
    desk.repository.push("a#b?c")
    desk.repository.open("b", base="a#b?c")
    assert (await desk.forge.observe([1]))[1].base_branch == "a#b?c"
    assert any(asked.address.endswith("/branches/a%23b%3Fc") for asked in desk.vendor.requests)
