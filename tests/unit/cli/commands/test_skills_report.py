"""`symphony skills report` on journals that the tests write."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.commands import call
from harness.journalling import NOW, run, skills, written
from published.schemas import conforms_to
from symphony.daemon.state_dir import library_key
from symphony.journal.model import Record, SkillUse
from symphony.library.model import Rating
from symphony.library.store import LIBRARY_FILE, Library


def use(name: str, *, listed: bool = True, seen: bool = False, sha256: str = "1") -> SkillUse:
    return SkillUse(name=name, path=f"/{name}", sha256=sha256, listed=listed, seen=seen)


USES: tuple[Record, ...] = (
    replace(run(1), ended_wall_ms=NOW + 10, outcome="succeeded"),
    replace(run(2), ended_wall_ms=NOW + 10, outcome="failed"),
    run(3),
    skills(1, use("release", seen=True), use("docs"), use("dropped", listed=False)),
    skills(2, use("release", sha256="2"), use("dropped", listed=False)),
    skills(3, use("release", sha256="2", seen=True)),
)


def test_a_report_counts_listed_and_seen_skills_and_leaves_out_dropped_ones(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(journal, *USES)
    monkeypatch.setattr("time.time_ns", lambda: (NOW + 1_000) * 1_000_000)
    found = json.loads(call("skills", "report", "--json").stdout)
    conforms_to("skills-report", found)
    assert {one["name"]: (one["listed"], one["seen"], one["versions"]) for one in found["skills"]} == {
        "release": (3, 2, 2),
        "docs": (1, 0, 1),
    }
    (release,) = [one for one in found["skills"] if one["name"] == "release"]
    assert release["outcomes"] == {"succeeded": 1, "failed": 1, "running": 1}
    assert release["seen_outcomes"] == {"succeeded": 1, "running": 1}
    lines = call("skills", "report").stdout.splitlines()
    assert lines[0].split() == [
        "NAME",
        "LISTED",
        "SEEN",
        "SUCCEEDED",
        "OTHERWISE",
        "VERSIONS",
        "LAST",
        "USED",
    ]
    assert lines[1].split()[:8] == ["release", "3", "2", "1", "1", "failed,", "1", "running"]


def test_the_stars_of_the_work_count_for_its_latest_run_and_those_of_visitors_do_not(journal: Path) -> None:
    written(journal, *USES)
    library = Library(journal.parent / LIBRARY_FILE)
    for stars, author in ((1, "operator"), (4, "operator"), (1, "visitor")):
        rating = Rating(
            workflow=library_key(journal.parent),
            issue_id="id-1",
            issue_identifier="SYM-1",
            run_ids=("r-1", "r-0"),
            stars=stars,
            author=author,
        )
        library.rate(rating)
    found = json.loads(call("skills", "report", "--json", "--since", "9000d").stdout)
    conforms_to("skills-report", found)
    rated = {(one["name"], one["sha256"]): one["stars"] for one in found["outcomes"]["versions"]}
    assert rated == {("docs", "1"): 4.0, ("release", "1"): 4.0, ("release", "2"): None}


def test_a_library_that_cannot_be_read_costs_the_stars_only(journal: Path) -> None:
    written(journal, *USES)
    (journal.parent / LIBRARY_FILE).write_text("no database")
    found = json.loads(call("skills", "report", "--json", "--since", "9000d").stdout)
    assert {one["stars"] for one in found["outcomes"]["versions"]} == {None}


def test_a_report_without_runs_says_so(journal: Path) -> None:
    written(journal, *USES)
    assert call("skills", "report", "--since", "1m").stdout == "No run listed a skill in this time.\n"
    found = json.loads(call("skills", "report", "--json", "--since", "1m").stdout)
    conforms_to("skills-report", found)
    assert found["skills"] == []
