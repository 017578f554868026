"""Jobs as data: which one counts, when it is due again, and when it is given up."""

from dataclasses import replace

import pytest

from harness.scheduling import make_failure
from symphony.domain import Blame
from symphony.journal.jobs import (
    GIVE_UP_MS,
    GIVE_UP_REFUSED_MS,
    LONGEST_LATE_RETRY_MS,
    LONGEST_RETRY_MS,
    MIN_ATTEMPTS,
    YOUNG_MS,
    Job,
    JobState,
    after_failure,
    backoff_ms,
    newest,
    tried_again,
)

JOB = Job(
    key="comment:1:delivery",
    kind="comment",
    receiver="r",
    issue_id="1",
    issue_identifier="SYM-1",
    payload="{}",
    created_wall_ms=0,
    due_wall_ms=0,
)
OFTEN = replace(JOB, attempts=MIN_ATTEMPTS - 1)
REFUSED = make_failure(retryable=False)


def test_waits_double_up_to_the_longest() -> None:
    assert [backoff_ms(attempts, 20_000) for attempts in (1, 2, 3, 5, 6, 10_000)] == [
        1_000, 2_000, 4_000, 16_000, 20_000, 20_000,
    ]  # fmt: skip


def test_the_newer_job_of_a_key_counts() -> None:
    newer = replace(JOB, payload='{"a":1}', created_wall_ms=5)
    assert newest(None, JOB) is JOB
    assert newest(JOB, newer) == newer


def test_the_same_thing_again_changes_nothing_unless_it_was_given_up() -> None:
    tried, again = replace(JOB, attempts=3, failure="no"), replace(JOB, created_wall_ms=5)
    assert newest(tried, again) is tried
    assert newest(replace(tried, state=JobState.GIVEN_UP), again) == replace(again, failure="no")
    assert newest(tried, replace(again, receiver="another")).receiver == "another"


@pytest.mark.parametrize(("age_ms", "longest_ms"), [(0, LONGEST_RETRY_MS), (YOUNG_MS, LONGEST_LATE_RETRY_MS)])
def test_a_job_that_failed_is_due_later(age_ms: int, longest_ms: int) -> None:
    after = after_failure(OFTEN, make_failure("down"), now_wall_ms=age_ms)
    assert (after.attempts, after.state, after.failure) == (MIN_ATTEMPTS, "waiting", "turn_failed: down")
    assert after.due_wall_ms == age_ms + min(longest_ms, 2 ** (MIN_ATTEMPTS - 1) * 1_000)


def test_a_receiver_that_says_when_to_come_again_is_obeyed() -> None:
    assert after_failure(JOB, make_failure(retry_after_ms=90_000), now_wall_ms=7).due_wall_ms == 90_007


@pytest.mark.parametrize(
    ("job", "age_ms", "failure", "given_up"),
    [
        (OFTEN, GIVE_UP_MS, make_failure(), True),
        (OFTEN, GIVE_UP_MS - 1, make_failure(), False),
        (JOB, 10 * GIVE_UP_MS, make_failure(), False),
        (OFTEN, GIVE_UP_REFUSED_MS, REFUSED, True),
        (OFTEN, GIVE_UP_REFUSED_MS - 1, REFUSED, False),
        (JOB, 0, replace(REFUSED, blame=Blame.CONFIG), True),
        (JOB, 0, make_failure(blame=Blame.CONFIG), False),
    ],
    ids=["old", "young", "daemon was away", "refused", "refused just now", "mistake", "may pass"],
)
def test_a_job_is_given_up_after_a_bound(job: Job, age_ms: int, failure: object, given_up: bool) -> None:  # noqa: FBT001
    after = after_failure(job, failure, now_wall_ms=age_ms)  # type: ignore[arg-type]
    assert (after.state is JobState.GIVEN_UP) is given_up


def test_a_person_who_asks_for_it_makes_it_new() -> None:
    given_up = replace(OFTEN, state=JobState.GIVEN_UP, failure="no")
    again = tried_again(given_up, now_wall_ms=9)
    assert (again.state, again.attempts, again.created_wall_ms, again.due_wall_ms) == ("waiting", 0, 9, 9)
