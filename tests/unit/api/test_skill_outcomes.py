"""What became of runs, by the skills that they listed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.journalling import NOW, run, skills, written
from kit.facts import changed
from symphony.api.models import SkillOutcomes
from symphony.api.skill_outcomes import skill_outcomes
from symphony.domain import Issue
from symphony.journal.model import Milestone, Record, RunRecord, SkillUse
from symphony.journal.reader import open_reader
from symphony.journal.recorder import milestone_record


def use(name: str, sha256: str = "1", *, seen: bool = False) -> SkillUse:
    return SkillUse(name=name, path=f"/{name}", sha256=sha256, listed=True, seen=seen)


def ended(number: int, **values: Any) -> RunRecord:
    return changed(run(number, ended_wall_ms=NOW + number, outcome="succeeded"), **values)


def ready(number: int, milestone: Milestone = Milestone.READY) -> Record:
    issue = Issue(id=f"id-{number}", identifier=f"SYM-{number}", title="", state="", dispatchable=False)
    return milestone_record(issue, milestone)


def figures(path: Path, stars: dict[str, int] | None = None, since_wall_ms: int = 0) -> SkillOutcomes:
    with open_reader(path) as reader:
        return skill_outcomes(reader.version_outcomes(stars=stars, since_wall_ms=since_wall_ms))


def test_the_report_tells_two_versions_of_a_skill_apart(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    old: list[Record] = [
        record
        for number in range(12)
        for record in (
            ended(number, turn_count=6, total_tokens=900, blocked=number < 3, agent_name="codex"),
            skills(number, use("release"), use("docs")),
        )
    ]
    new: list[Record] = [
        record
        for number in range(20, 32)
        for record in (
            ended(
                number,
                turn_count=2,
                total_tokens=300,
                delivered=True,
                verified="passed" if number < 28 else "failed" if number < 31 else "base_failed",
                agent_name="codex" if number < 25 else "claude",
                library_versions={"release": 2},
            ),
            skills(number, use("release", "2", seen=True)),
        )
    ]
    left_out: list[Record] = [
        run(40),
        skills(40, use("release", "2")),
        replace(run(41, ended_wall_ms=NOW, outcome="interrupted"), delivered=True),
        skills(41, use("release", "2")),
    ]
    written(path, *old, *new, *left_out)
    written(path, *(ready(number) for number in range(20, 31)), ready(20, Milestone.MERGED))
    found = figures(path, stars={"r-20": 5, "r-21": 4, "r-40": 1})
    docs, second, first = found.versions
    assert (docs.name, docs.runs) == ("docs", 12)
    assert (first.library_version, first.runs, first.opened) == (None, 12, 0)
    assert (second.library_version, second.runs, second.opened) == (2, 12, 12)
    assert (first.delivered, second.delivered) == (0, 12)
    assert (second.verified, second.verify_failed, first.verified) == (8, 3, 0)
    assert (first.ready, second.ready, second.merged) == (0, 11, 1)
    assert (first.blocked, second.blocked) == (3, 0)
    assert (first.turns, first.tokens, second.turns, second.tokens) == (6, 900, 2, 300)
    assert (first.stars, second.stars, second.rated) == (None, 4.5, 2)
    assert [(one.agent, one.runs) for one in second.agents] == [("claude", 7), ("codex", 5)]
    assert figures(path, since_wall_ms=NOW + 100).versions == ()


def test_a_milestone_counts_for_the_last_run_that_delivered(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    same = {"issue_id": "id-1", "issue_identifier": "SYM-1"}
    written(path, ready(1), ended(1, delivered=True), ended(2, delivered=True, **same), ended(3, **same))
    written(path, ready(1), ready(9))
    with open_reader(path) as reader:
        assert [(one.run_id, one.ready) for one in reader.runs()] == [
            ("r-3", False),
            ("r-2", True),
            ("r-1", False),
        ]
