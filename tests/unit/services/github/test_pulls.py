import pytest

from contract.forges import ForgeDesk, forge_desk
from contract.graphql_schema import check_graphql, graphql_schema
from contract.repository import BOT, READER, WRITER, Comment
from contract.schemas import GITHUB_GRAPHQL, NO_GITHUB_GRAPHQL, schema_file
from contract.vendor import Given
from harness.real import absent
from symphony.domain import CheckState, ReviewState, ServiceError
from symphony.services.github import pulls
from symphony.services.pulls import Landing

pytestmark = pytest.mark.asyncio


@pytest.fixture
def desk() -> ForgeDesk:
    return forge_desk("github")


def test_every_query_fits_githubs_schema() -> None:
    if schema_file(GITHUB_GRAPHQL) is None:
        absent(*NO_GITHUB_GRAPHQL)
    schema = graphql_schema(GITHUB_GRAPHQL)
    pages = [pulls.next_page(1, name) for name in ("comments", "reviews", "reviewThreads", "files", "checks")]
    writes = [
        pulls.REPLY,
        pulls.RESOLVE,
        pulls.ARM,
        pulls.DISARM,
        pulls.ENQUEUE,
        pulls.DEQUEUE,
        pulls.MERGE,
    ]
    for query in (
        pulls.observation([1, 2]),
        *pages,
        pulls.FIND,
        pulls.FIND_ONTO,
        pulls.ACCESS,
        pulls.METHOD,
        *writes,
    ):
        check_graphql(schema, query, {}, None)


async def test_many_pull_requests_take_one_query_and_none_while_nothing_happens(desk: ForgeDesk) -> None:
    for number in range(20):
        desk.repository.open(f"b{number}")
    numbers = range(1, 21)

    def queries() -> int:
        return sum("graphql" in asked.address for asked in desk.vendor.requests)

    await desk.forge.observe(numbers)
    assert queries() == 1
    await desk.forge.observe(numbers)
    before = queries()
    await desk.forge.observe(numbers)
    assert queries() == before


async def test_what_the_probes_do_not_show_is_seen_at_the_fifth_at_the_latest(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    for _ in range(3):
        await desk.forge.observe([1])
    pull.conflicts = True  # somebody pushed to the base, which changes nothing here
    seen = [(await desk.forge.observe([1]))[1].conflicts for _ in range(5)]
    assert seen[-1] is True


async def test_one_that_was_not_sent_because_of_an_error_is_not_taken_for_deleted(desk: ForgeDesk) -> None:
    desk.repository.open("b")
    failed = {"data": {"repository": {"p1": None}}, "errors": [{"message": "Something went wrong"}]}
    for more in ([], [{"type": "NOT_FOUND", "message": "no p2"}, {"type": "INTERNAL", "message": "no p1"}]):
        failed = {**failed, "errors": more or failed["errors"]}
        desk.vendor.fail_next(Given(body=failed), when="graphql")
        with pytest.raises(ServiceError):
            await desk.forge.observe([1], fresh=True)
    assert set(await desk.forge.observe([1], fresh=True)) == {1}


async def test_an_app_is_no_person_of_its_name(desk: ForgeDesk) -> None:
    desk.repository.say(desk.repository.open("b"), BOT, "unused variable")
    assert (await desk.forge.observe([1]))[1].comments[0].author.login == f"{BOT}[bot]"


async def test_a_member_of_the_organisation_who_may_only_read_is_no_writer(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    desk.repository.review(pull, READER, ReviewState.APPROVED)
    desk.repository.say(pull, WRITER, "why?")
    seen = (await desk.forge.observe([1]))[1]
    assert [review.author.can_write for review in seen.reviews] == [False]
    assert seen.comments[0].author.can_write

    forbidden = Given(status=403, body={"message": "Resource not accessible"})
    desk.vendor.fail_next(forbidden, when="/collaborators/ann/")
    assert not (await desk.forge.observe([1], fresh=True))[1].comments[0].author.can_write


async def test_ours_is_found_behind_any_number_of_forks_with_the_same_branch(desk: ForgeDesk) -> None:
    own = desk.repository.open("symphony/SYM-1")
    for _ in range(120):
        desk.repository.open("symphony/SYM-1").head_repo = "mallory/website"
    assert [pull.number for pull in await desk.forge.find("symphony/SYM-1")] == [own.number]


async def test_a_long_thread_is_called_incomplete_and_its_newest_comments_are_read(desk: ForgeDesk) -> None:
    thread = desk.repository.remark(desk.repository.open("b"), WRITER, "why?")
    thread.comments += [Comment(number, WRITER, "?", desk.repository.now()) for number in range(60)]
    thread.comments.append(Comment(99, WRITER, "well?", desk.repository.now()))
    seen = (await desk.forge.observe([1]))[1]
    assert not seen.complete
    assert seen.threads[0].comments[-1].body == "well?", "the newest are read"


async def test_what_is_ready_joins_the_merge_queue_and_leaves_it(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    desk.repository.check(pull, "test", CheckState.PASSED)
    assert await desk.forge.arm((await desk.forge.observe([1]))[1], Landing.QUEUE) is Landing.QUEUE
    seen = (await desk.forge.observe([1], fresh=True))[1]
    assert seen.queued
    await desk.forge.disarm(seen)
    assert not pull.queued


async def test_a_token_without_the_scope_is_told(desk: ForgeDesk) -> None:
    desk.repository.scopes = "gist, read:org"
    assert (await desk.forge.access()).missing == ("the scope repo",)


async def test_a_log_that_ci_has_deleted_is_none_and_a_line_without_end_is_cut(desk: ForgeDesk) -> None:
    pull = desk.repository.open("b")
    check = desk.repository.check(pull, "test", CheckState.FAILED, log=b"x")
    seen = (await desk.forge.observe([1]))[1].checks[0]
    desk.vendor.fail_next(Given(status=410))
    assert await desk.forge.log_tail(seen) is None
    for address in (
        "http://logs.example.test/1",
        "https://127.0.0.1/1",
        "https://u:p@logs.example.test/1",
    ):
        desk.vendor.fail_next(Given(status=302, headers={"location": address}))
        with pytest.raises(ServiceError, match="302"):
            await desk.forge.log_tail(seen)
    check.log = b"no line break " * 100_000
    tail = await desk.forge.log_tail(seen)
    assert tail is not None
    assert len(tail) <= 500
