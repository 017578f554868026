import pytest
from structlog.testing import capture_logs

from contract.desk import Desk
from contract.vendor import ELSEWHERE, Fault, Given
from symphony.domain import Blame, Category, Failure, template_view
from symphony.trackers.base import TrackerError

pytestmark = pytest.mark.asyncio


async def failing(desk: Desk) -> Failure:
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_states([desk.todo])
    failure = caught.value.failure
    assert failure.blame is Blame.TRACKER
    assert failure.hint
    assert "\n" not in failure.message
    assert len(failure.message) < 600
    return failure


@pytest.mark.conformance("T-9")
@pytest.mark.parametrize(
    ("fault", "category", "status"),
    [
        (Fault.UNAUTHORISED, Category.TRACKER_STATUS, 401),
        (Fault.FORBIDDEN, Category.TRACKER_STATUS, 403),
        (Fault.SERVER_ERROR, Category.TRACKER_STATUS, 500),
        (Fault.HTML, Category.TRACKER_RESPONSE, None),
        (Fault.CUT_JSON, Category.TRACKER_RESPONSE, None),
        (Fault.WRONG_TYPE, Category.TRACKER_RESPONSE, None),
        (Fault.REDIRECT_ELSEWHERE, Category.TRACKER_STATUS, 302),
    ],
)
async def test_a_refusal_becomes_a_typed_failure_at_once(
    desk: Desk, fault: Fault, category: Category, status: int | None
) -> None:
    desk.vendor.fail_next(fault)
    with pytest.raises(TrackerError) as caught:
        await desk.tracker.fetch_issues_by_states([desk.todo])
    assert (caught.value.failure.category, caught.value.failure.status) == (category, status)
    assert caught.value.failure.hint
    assert len(desk.vendor.requests) == 1, "neither repeated nor followed"


async def test_a_refusal_that_only_a_person_can_heal_says_what_to_do(desk: Desk) -> None:
    desk.vendor.fail_next(Fault.UNAUTHORISED)
    failure = await failing(desk)
    assert "tracker.provider." in str(failure.hint)
    assert not failure.retryable


async def test_a_wrong_project_fails_and_is_no_empty_list(desk: Desk) -> None:
    desk.vendor.fail_next(Fault.NOT_FOUND)
    failure = await failing(desk)
    assert failure.category is Category.TRACKER_STATUS


async def test_a_redirect_to_another_host_is_named_and_not_followed(desk: Desk) -> None:
    desk.vendor.fail_next(Fault.REDIRECT_ELSEWHERE)
    assert "elsewhere.example.test" in str((await failing(desk)).hint)
    assert all(ELSEWHERE not in asked.address for asked in desk.vendor.requests)


@pytest.mark.conformance("T-9")
@pytest.mark.parametrize("fault", [Fault.NO_CONNECTION, Fault.SILENCE])
async def test_no_answer_is_asked_for_again_and_then_a_failure(desk: Desk, fault: Fault) -> None:
    desk.vendor.fail_next(fault, times=3)
    failure = await failing(desk)
    assert failure.category is Category.TRACKER_REQUEST
    assert failure.retryable
    assert len(desk.vendor.requests) == 3
    assert sum(desk.clock.slept) < 3, "a moment, and no more"


@pytest.mark.parametrize("fault", [Fault.NO_CONNECTION, Fault.SILENCE, Fault.UNAVAILABLE])
async def test_what_passes_by_itself_is_not_noticed(desk: Desk, fault: Fault) -> None:
    wanted = desk.put(1)
    desk.vendor.fail_next(fault, times=2)
    assert [issue.id for issue in await desk.tracker.fetch_issues_by_states([desk.todo])] == [wanted]
    assert [issue.id for issue in await desk.tracker.fetch_issues_by_ids([wanted])] == [wanted]


async def test_a_refresh_does_not_take_a_failure_for_gone(desk: Desk) -> None:
    wanted = desk.put(1)
    for fault in (Fault.SERVER_ERROR, Fault.FORBIDDEN, Fault.HTML, Fault.WRONG_TYPE):
        desk.vendor.fail_next(fault)
        with pytest.raises(TrackerError):
            await desk.tracker.fetch_issues_by_ids([wanted])


async def test_what_is_gone_for_good_is_omitted_by_a_refresh(desk: Desk) -> None:
    for fault in desk.gone:
        wanted = [desk.put(1), desk.put(2)]
        desk.vendor.fail_next(fault)
        assert len(await desk.tracker.fetch_issues_by_ids(wanted)) == 1, fault


# --- limits ---


@pytest.mark.conformance("T-9")
async def test_every_form_of_a_pause_is_understood_and_kept(desk: Desk) -> None:
    assert desk.vendor.throttles()
    for label, (given, expected_ms) in desk.vendor.throttles().items():
        desk = type(desk)()
        desk.put(1)
        desk.vendor.fail_next(given)
        failure = await failing(desk)
        assert failure.category is Category.TRACKER_RATE_LIMITED, label
        assert failure.retry_after_ms == (expected_ms or 60_000), label
        asked = len(desk.vendor.requests)
        assert (await failing(desk)).category is Category.TRACKER_RATE_LIMITED
        with pytest.raises(TrackerError):
            await desk.tracker.fetch_issues_by_ids(["1"])
        with pytest.raises(TrackerError):
            await desk.tracker.list_comments("1")
        assert len(desk.vendor.requests) == asked == 1, f"{label}: nothing is asked during a pause"
        desk.clock.pass_ms(failure.retry_after_ms or 0)
        assert len(await desk.tracker.fetch_issues_by_states([desk.todo])) == 1, label


async def test_a_pause_holds_for_everybody_with_the_same_credential(desk: Desk) -> None:
    other = desk.another()
    given, _ = next(iter(desk.vendor.throttles().values()))
    desk.vendor.fail_next(given)
    await failing(desk)
    with pytest.raises(TrackerError) as caught:
        await other.fetch_issues_by_states([desk.todo])
    assert caught.value.failure.category is Category.TRACKER_RATE_LIMITED
    assert len(desk.vendor.requests) == 1


async def test_a_credential_that_is_not_taken_is_not_tried_again_at_once(desk: Desk) -> None:
    desk.put(1)
    desk.vendor.fail_next(Fault.UNAUTHORISED)
    first, second = await failing(desk), await failing(desk)
    assert first == second
    assert len(desk.vendor.requests) == 1
    desk.clock.pass_ms(60_000)
    assert len(await desk.tracker.fetch_issues_by_states([desk.todo])) == 1


# --- secrets ---


async def test_the_credential_is_in_no_text_of_ours(desk: Desk) -> None:
    issue_id = desk.put(1)
    secret = desk.vendor.secret
    texts = [repr(desk.tracker), repr(desk.settings()), repr(vars(desk.tracker.flows))]
    with capture_logs() as logs:
        for fault in [*Fault, Given(status=400, raw=f"your token {secret} is bad".encode())]:
            fresh = type(desk)()
            fresh.vendor.fail_next(fault, times=3)
            with pytest.raises(TrackerError) as caught:
                await fresh.tracker.fetch_issues_by_states([desk.todo])
            texts += [str(caught.value), repr(caught.value.failure), repr(caught.value.__cause__)]
    (issue,) = await desk.tracker.fetch_issues_by_ids([issue_id])
    texts += [repr(template_view(issue)), repr(logs), repr(desk.tracker.quota())]
    for text in texts:
        assert secret not in text


async def test_the_variables_of_the_credential_are_kept_from_children(desk: Desk) -> None:
    assert set(desk.environment()) <= desk.tracker.secret_environment_names()
