import pytest

from contract.forges import ForgeDesk, forge_desk
from contract.repository import WRITER
from contract.vendor import Given
from symphony.domain import CheckState, PullState, ReviewState
from symphony.services.pulls import Landing

pytestmark = pytest.mark.asyncio


@pytest.fixture
def desk() -> ForgeDesk:
    return forge_desk("gitlab")


async def test_a_pipeline_of_an_earlier_commit_says_so(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    old = pull.sha
    desk.repository.check(pull, "test", CheckState.PASSED)
    desk.repository.push("b", pull)

    seen = (await desk.forge.observe([1]))[1]

    assert seen.head_sha == pull.sha
    assert [check.sha for check in seen.checks] == [old]


async def test_a_pipeline_of_merged_results_counts_for_the_commit_that_it_merges_and_no_later_one(
    desk: ForgeDesk,
) -> None:
    pull = desk.repository.open("b")
    desk.repository.check(pull, "test", CheckState.PASSED)
    pull.merged_results = "e" * 40
    first = (await desk.forge.observe([1]))[1]
    assert [check.sha for check in first.checks] == [pull.sha]

    desk.repository.push("b", pull)
    (later,) = (await desk.forge.observe([1]))[1].checks
    assert later.sha == "e" * 40
    asked = [request for request in desk.vendor.requests if "/commits/" in request.path]
    assert len(asked) == 1, "what a commit merges never changes"
    pull.merged_results = "d" * 40
    desk.vendor.fail_next(Given(status=404, body={"message": "404 Not found"}), when="/commits/")
    assert [check.sha for check in (await desk.forge.observe([1]))[1].checks] == ["d" * 40]


async def test_a_pipeline_that_fails_before_it_has_jobs_is_a_failed_check(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    desk.repository.check(pull, "test", CheckState.FAILED)
    desk.vendor.fail_next(Given(body=[]), when="/jobs")

    (check,) = (await desk.forge.observe([1]))[1].checks

    assert (check.name, check.state, check.required, check.log) == ("pipeline", CheckState.FAILED, True, None)


async def test_a_merge_train_is_joined_at_the_judged_head_and_left_again(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    seen = (await desk.forge.observe([1]))[1]
    assert await desk.forge.arm(seen, Landing.QUEUE) is Landing.QUEUE
    assert pull.queued
    await desk.forge.disarm(seen)
    assert not pull.queued
    assert pull.state is PullState.OPEN


async def test_the_rights_of_more_than_a_hundred_authors_are_read(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    for number in range(150):
        desk.repository.writers.add(f"dev{number}")
        desk.repository.say(pull, f"dev{number}", "why?")
    seen = (await desk.forge.observe([1]))[1]
    assert all(comment.author.can_write for comment in seen.comments)


async def test_a_token_without_the_scope_is_told(desk: ForgeDesk) -> None:
    desk.repository.scopes = "read_api,read_repository"
    assert (await desk.forge.access()).missing == ("the scope api",)


async def test_an_approval_is_of_the_commit_that_was_the_head_at_its_time(desk: ForgeDesk) -> None:
    """GitLab keeps approvals after a push, unless a project says otherwise."""
    pull = desk.repository.open("b")
    first = pull.sha
    desk.repository.review(pull, WRITER, ReviewState.APPROVED)
    (seen,) = (await desk.forge.observe([1]))[1].reviews
    assert (seen.state, seen.sha) == (ReviewState.APPROVED, first)

    desk.repository.push("b", pull)
    (seen,) = (await desk.forge.observe([1], fresh=True))[1].reviews
    assert (seen.state, seen.sha) == (ReviewState.APPROVED, first)

    desk.repository.review(pull, WRITER, ReviewState.APPROVED)
    assert {each.sha for each in (await desk.forge.observe([1], fresh=True))[1].reviews} == {pull.sha}


async def test_a_comment_that_reads_like_an_approval_is_none(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    desk.repository.review(pull, WRITER, ReviewState.APPROVED)
    first = pull.sha
    desk.repository.push("b", pull)
    desk.repository.say(pull, WRITER, "approved this merge request")
    (seen,) = (await desk.forge.observe([1], fresh=True))[1].reviews
    assert seen.sha == first
