"""Promise: a holdout withholds a skill from an issue for good, says so everywhere, and is compared."""

import json
from typing import Any

from harness.project import Project
from symphony.library.holdout import withheld_skill
from symphony.library.model import Change, SkillText
from symphony.library.store import LIBRARY_FILE, Library

NAMES = ("style", "tests")
SHARE = 0.5
LOOK = {"run": 'ls .agents/skills > ../../seen-$(basename "$PWD")-$(ls ../.. | grep -c seen-)'}
FAIL_ONCE = {"run": "test -e ../../tried || { touch ../../tried; exit 1; }"}
WORK: list[dict[str, Any]] = [
    {"write": "work.txt", "text": "work\n"},
    {"commit": "Work"},
    {"tool": "board_move", "arguments": {"state": "Done"}},
]


def issue_of(*, drawn: bool) -> tuple[str, str | None]:
    """An issue in one arm, and the skill that is withheld from it."""
    for number in range(1, 100):
        withheld = withheld_skill(name := f"SYM-{number}", NAMES, SHARE)
        if (withheld is not None) is drawn:
            return name, withheld
    raise AssertionError


def skills_of(project: Project, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(project.symphony("explain", name, "--json").stdout)["skills"]
    return shown


def seen(project: Project, name: str) -> list[set[str]]:
    """What the agent found in each attempt."""
    return [set(file.read_text().split()) for file in sorted(project.root.glob(f"seen-{name}-*"))]


def test_an_issue_keeps_its_arm_over_its_attempts_and_the_report_compares_the_arms(project: Project) -> None:
    library = Library(project.state_dir / LIBRARY_FILE)
    for name in NAMES:
        text = SkillText(name=name, description=f"What {name} does.", when_to_use="", content="Be brief.\n")
        library.add(text, Change(author="ada"))
    project.workflow(agent={"library": {"holdout": SHARE}})
    (without, withheld), (beside, _) = issue_of(drawn=True), issue_of(drawn=False)
    assert withheld is not None
    others = set(NAMES) - {withheld}
    project.issue(without, [LOOK, FAIL_ONCE, *WORK])
    project.issue(beside, [LOOK, *WORK])
    with project.daemon() as daemon:
        for name in (without, beside):
            daemon.wait_for("run_ended", issue_identifier=name, outcome="succeeded")
        written = [
            line
            for line in daemon.events()
            if line["event"] == "library_skills_written" and line["issue_identifier"] == without
        ]
        assert [line["withheld"] for line in written] == [withheld, withheld], "a retry keeps the arm"
        assert seen(project, without) == [others, others]
        assert seen(project, beside) == [set(NAMES)]
        assert not (project.workspaces / without / ".agents" / "skills" / withheld).exists()
        shown = skills_of(project, without)
        assert {one["name"] for one in shown["listed"]} == others
        assert {"name": withheld, "reason": "holdout"} in shown["dropped"]
        assert shown["holdout"] == SHARE
        assert "holdout" in project.symphony("explain", without).stdout
        assert {one["name"] for one in skills_of(project, beside)["listed"]} == set(NAMES)
        assert json.loads(project.symphony("prompt", without, "--json").stdout)["skills"]["holdout"] == SHARE
    report = json.loads(project.symphony("skills", "report", "--json").stdout)["outcomes"]
    (compared,) = report["holdouts"]
    assert compared["name"] == withheld
    assert (compared["with_skill"]["issues"], compared["without_skill"]["issues"]) == (1, 1)
