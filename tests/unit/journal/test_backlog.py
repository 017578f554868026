import pytest

from harness.journalling import NOW, claim, event, run, skills
from symphony.journal import backlog
from symphony.journal.backlog import Backlog, Mirror, key_of
from symphony.journal.model import ClaimGone, IssueSpent, Remembered
from symphony.scheduler.inputs import Spent


def test_the_newest_of_a_key_replaces_the_one_before() -> None:
    kept = Backlog()
    kept.add([claim(1), run(1)])
    kept.add([claim(1, attempt=2), run(1, ended_wall_ms=NOW)])
    batch = kept.take()
    assert list(batch.records) == [claim(1, attempt=2), run(1, ended_wall_ms=NOW)]
    assert not kept
    assert not kept.take()


def test_a_run_that_lives_again_is_no_history() -> None:
    kept = Backlog()
    kept.add([run(1, ended_wall_ms=NOW), run(1)])
    batch = kept.take()
    assert (list(batch.current.values()), batch.history) == ([run(1)], {})


def test_history_gives_way_and_the_truth_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_HISTORY", 2)
    kept = Backlog()
    kept.add(claim(number) for number in range(5))
    kept.add(run(number, ended_wall_ms=NOW) for number in range(5))
    kept.add([skills(9)])
    batch = kept.take()
    assert len(batch.current) == 5
    assert list(batch.history.values()) == [run(4, ended_wall_ms=NOW), skills(9)]
    assert kept.lost == 4


def test_events_give_way_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_EVENT_CHARS", 1_000)
    kept = Backlog()
    kept.add(event(number, message="m" * 200) for number in range(4))
    assert kept.lost == 2
    assert list(kept.take().events) == [event(2, message="m" * 200), event(3, message="m" * 200)]
    kept.add([event(1, message="m" * 600)])
    assert kept.lost == 2, "what was taken makes room"


def test_no_two_events_are_about_the_same() -> None:
    assert key_of(event(1)) != key_of(event(2))


def test_the_mirror_forgets_what_is_over_however_many_issues_come_and_go() -> None:
    mirror = Mirror(Remembered())
    for number in range(3):
        key = claim(number).issue.id
        mirror.add([claim(number), IssueSpent(issue_id=key, spent=Spent(tokens=7)), run(number)])
        mirror.add([ClaimGone(issue_id=key), IssueSpent(issue_id=key, spent=Spent())])
        mirror.add([run(number, ended_wall_ms=NOW)])
    assert mirror.copy() == ()
