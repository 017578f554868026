from datetime import timedelta

from msgspec.structs import replace

from harness.chronicle import SKILLS, START, Chronicle
from harness.scheduling import make_issue
from symphony.api.history import MAX_EVENTS, History
from symphony.api.models import DroppedSkill, ListedSkill, SkillProblem, Skills, SkillsTotals
from symphony.scheduler import (
    AgentReported,
    Outcome,
    OutcomeKind,
    RunEnded,
    RunReport,
    RunStage,
    step,
)


def test_an_empty_history_knows_nothing_and_answers_all_the_same() -> None:
    history = History()
    assert (history.of("1"), history.last_poll_at) == (None, None)
    assert history.wall(0, now_ms=0, now=START) == START


def test_a_talkative_agent_does_not_push_out_why_the_issue_was_retried() -> None:
    story = Chronicle(make_issue("1")).begin()
    for number in range(MAX_EVENTS * 3):
        story.streams(last_event="item", last_message=f"word {number}")
    memory = story.history.of("1")
    assert memory is not None
    assert [one.event for one in memory.decisions] == ["run_started"]
    assert len(memory.agent_events) == MAX_EVENTS
    assert memory.recent()[-1].message == f"word {MAX_EVENTS * 3 - 1}"


def test_a_word_that_is_repeated_is_one_event() -> None:
    story = Chronicle(make_issue("1")).begin()
    for _ in range(3):
        story.streams(last_message="reads")
    memory = story.history.of("1")
    assert memory is not None
    assert [(one.event, one.message) for one in memory.agent_events] == [("notification", "reads")]


def test_only_a_sign_of_life_moves_the_time_of_the_last_one() -> None:
    story = Chronicle(make_issue("1")).begin()
    story.streams()
    memory = story.history.of("1")
    assert memory is not None
    heard = memory.last_event_at
    story.now += 5_000
    story.report(total_tokens=5)
    assert memory.last_event_at == heard
    story.streams()
    assert memory.last_event_at == START + timedelta(seconds=5)


def test_runs_are_counted_and_the_last_error_stays_until_there_is_another() -> None:
    story = Chronicle(make_issue("1")).begin()
    story.fails()
    story.advance(10_000)
    memory = story.history.of("1")
    assert memory is not None
    assert (memory.runs, memory.last_error) == (2, "turn_failed: it broke")
    story.ends(kind=OutcomeKind.SUCCEEDED)
    story.advance(1_000)
    assert (memory.runs, memory.last_error) == (3, "turn_failed: it broke")


def test_a_retry_without_a_slot_keeps_what_the_last_run_failed_of() -> None:
    story = Chronicle(make_issue("1"), make_issue("2", priority=4), max_concurrent_agents=1).begin()
    story.fails()
    story.advance(10_000)
    (row,) = story.document()["retrying"]
    assert (row["error"], row["last_error"]) == ("no available orchestrator slots", "turn_failed: it broke")


def test_the_oldest_issues_without_a_claim_are_forgotten_first() -> None:
    story = Chronicle(make_issue("claimed"))
    story.history = History(now=story.wall, max_issues=3)
    story.begin()
    for number in range(5):
        story.history.skills_loaded(f"old-{number}", "r", SKILLS)
    story.streams("claimed")
    assert story.history.of("claimed") is not None
    kept = [number for number in range(5) if story.history.of(f"old-{number}") is not None]
    assert kept == [3, 4]


def test_claims_are_kept_even_when_they_are_too_many() -> None:
    story = Chronicle(*(make_issue(str(number)) for number in range(5)))
    story.history = History(now=story.wall, max_issues=2)
    story.begin()
    assert all(story.history.of(str(number)) is not None for number in range(5))


def test_news_of_a_run_that_is_over_changes_nothing() -> None:
    story = Chronicle(make_issue("1")).begin()
    report = RunReport(stage=RunStage.STREAMING_TURN, event_count=1, last_message="late")
    ended = RunEnded(run_id="other", outcome=Outcome(kind=OutcomeKind.CANCELED))
    for fact in (AgentReported(run_id="other", report=report), ended):
        after, commands = step(story.state, fact, 0)
        story.history(story.state, fact, after, commands)
    memory = story.history.of("1")
    assert memory is not None
    assert [one.event for one in memory.recent()] == ["run_started"]


def test_a_jump_of_the_wall_clock_is_noted_with_the_next_step() -> None:
    story = Chronicle(make_issue("1")).begin()
    story.jump = timedelta(hours=-1)
    story.streams()
    assert story.history.wall(0, now_ms=story.now, now=story.wall()) == START - timedelta(hours=1)


def test_skills_are_summed_up_over_all_runs_as_far_as_they_matter_to_people() -> None:
    history = History()
    dropped = tuple(
        DroppedSkill(name=f"{reason}", reason=reason) for reason in ("count", "budget", "disabled", "search")
    )
    problems = (
        SkillProblem(path="a", code="bom", severity="warning"),
        SkillProblem(path="b", code="missing_name", severity="error"),
    )
    history.skills_loaded("1", "r", Skills(dropped=dropped, problems=problems))
    told = ListedSkill(name="x", path="x", sha256=None)
    for seen in (False, True):
        history.skills_loaded("2", "r", Skills(listed=(replace(told, seen=seen),)))
    assert history.skill_totals == SkillsTotals(runs=2, listed=1, dropped=2, malformed=1), "a run counts once"


def test_the_next_run_of_an_issue_is_summed_up_as_well() -> None:
    story = Chronicle(make_issue("1")).begin()
    story.history.skills_loaded("1", "r", SKILLS)
    story.ends("1").advance(60_000)
    story.history.skills_loaded("1", "r", SKILLS)
    assert story.history.skill_totals.runs == 2
