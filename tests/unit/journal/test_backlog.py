from harness.journalling import NOW, claim, event, run, skills
from symphony.journal.store import Backlog, record_key


def test_the_newest_of_a_key_replaces_the_one_before() -> None:
    kept = Backlog()
    kept.add([claim(1), run(1)])
    kept.add([claim(1, attempt=2), run(1, ended_wall_ms=NOW)])
    assert kept.take().records == (claim(1, attempt=2), run(1, ended_wall_ms=NOW))
    assert not kept


def test_a_run_that_lives_again_is_no_history() -> None:
    kept = Backlog(max_history=0)
    kept.add([run(1, ended_wall_ms=NOW), run(1)])
    kept.add([run(1)])
    assert kept.take().records == (run(1),)


def test_history_gives_way_and_the_truth_never() -> None:
    kept = Backlog(max_history=2)
    kept.add(claim(number) for number in range(5))
    kept.add(run(number, ended_wall_ms=NOW) for number in range(5))
    kept.add([skills(9)])
    records = kept.take().records
    assert records[:5] == tuple(claim(number) for number in range(5))
    assert records[5:] == (run(4, ended_wall_ms=NOW), skills(9))
    assert kept.lost == 4


def test_events_give_way_by_their_size() -> None:
    kept = Backlog(max_event_chars=1_000)
    kept.add(event(number, message="m" * 200) for number in range(4))
    assert kept.lost == 2
    assert kept.take().events == (event(2, message="m" * 200), event(3, message="m" * 200))
    kept.add([event(1, message="m" * 600)])
    assert kept.lost == 2, "what was taken makes room"


def test_no_two_events_are_about_the_same() -> None:
    assert record_key(event(1)) != record_key(event(2))
