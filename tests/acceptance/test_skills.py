"""Promise: skills are listed by name, never pasted; a malformed one costs one comment, never a dispatch."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.project import SKILL, Project, scripted
from harness.shell import word

DONE = {"tool": "board_move", "arguments": {"state": "Done"}}
THREAD_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}
READ: list[dict[str, Any]] = [
    {"skill": "greeting", "value_of": "word"},
    {"write": "out.txt", "text": "{skill_value}"},
    {"commit": "Use it"},
    DONE,
]


def _malformed(project: Project) -> None:
    project.write(".symphony/skills/nameless/SKILL.md", "---\ndescription: No name.\n---\n# x\nSECRET BODY\n")
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.write(".symphony/skills/broken/SKILL.md", "---\n{name: broken\n---\n")
    project.write(".symphony/skills/twin-a/SKILL.md", "---\nname: twin\ndescription: A.\n---\n")
    project.write(".symphony/skills/twin-b/SKILL.md", "---\nname: twin\ndescription: B.\n---\n")


def test_the_agent_finds_a_listed_skill_and_reads_it_itself(project: Project) -> None:
    project.workflow()
    project.skill("greeting", description="How to greet.", body="word: salut")
    project.commit("Add a skill")
    project.issue("SYM-1", READ)
    done = project.symphony("run", "--once")
    assert done.returncode == 0, done.stderr
    assert project.git("show", "symphony/SYM-1:out.txt") == "salut"


def test_malformed_skills_are_named_in_one_comment_that_is_edited_in_place(project: Project) -> None:
    project.workflow()
    project.skill("greeting", body="word: salut")
    _malformed(project)
    project.commit("Add skills, most of them malformed")
    project.issue("SYM-1", [REVIEW])
    assert project.once().returncode == 0
    (comment,) = project.comments("SYM-1")
    for name in ("nameless", "plain", "broken", "twin-b"):
        assert f".symphony/skills/{name}/SKILL.md" in comment
    for code in ("missing_name", "missing_front_matter", "invalid_yaml", "duplicate_name"):
        assert code in comment
    assert "SECRET BODY" not in comment
    assert str(project.root) not in comment
    mended = project.workspaces / "SYM-1" / ".symphony" / "skills" / "nameless" / "SKILL.md"
    mended.write_text("---\nname: nameless\ndescription: Now it has one.\n---\n")
    assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0
    assert project.once().returncode == 0
    (edited,) = project.comments("SYM-1", kind="skills")
    assert "nameless" not in edited
    assert ".symphony/skills/plain/SKILL.md" in edited


@pytest.mark.parametrize("with_folder", [True, False], ids=["empty folder", "no folder"])
def test_without_skills_nothing_is_posted_and_the_work_is_done(
    project: Project, *, with_folder: bool
) -> None:
    project.workflow(tracker={"comment_on_delivery": False})
    if with_folder:
        project.write(".symphony/skills/README.md", "nothing yet\n")
    project.commit("No skills")
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.once().returncode == 0
    assert project.comments("SYM-1") == []


@pytest.mark.slow
@pytest.mark.conformance("T-12")
def test_a_board_that_takes_no_comment_does_not_hold_the_work_back(project: Project) -> None:
    project.workflow()
    _malformed(project)
    project.commit("Malformed skills")
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    project.write(".symphony/issues/SYM-1/comments", "a file where the folder should be\n")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    daemon.wait_for("job_failed", kind="comment", issue_identifier="SYM-1")
    assert "state: Done" in (project.repo / ".symphony/issues/SYM-1.md").read_text()


@pytest.mark.slow
def test_the_names_beyond_the_limit_are_logged(project: Project) -> None:
    project.workflow(agent={"skills": {"max_skills_in_prompt": 1}})
    project.skill("alpha")
    project.skill("beta")
    project.commit("Two skills")
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert daemon.wait_for("skills_dropped")["names"] == ["beta"]
    assert daemon.wait_for("skills_listed")["names"] == ["alpha"]


def _frames_sent(root: Path, *, enabled: bool) -> str:
    """Everything the daemon wrote to an agent in one run, without what differs from place to place."""
    project = Project(root=root).create()
    frames = root / "frames"
    # The check before the first dispatch speaks to an agent too; the run's own frames are the last.
    listening = f"tee {word(frames)}.$$ | {scripted()}"
    project.workflow(command=listening, agent={"skills": {"enabled": enabled}})
    project.commit("No skills here")
    project.issue("SYM-1", [{"write": "a", "text": "a"}, {"commit": "A"}, DONE])
    assert project.once().returncode == 0
    newest = max(root.glob("frames.*"), key=lambda path: path.stat().st_mtime_ns)
    return THREAD_ID.sub("THREAD", newest.read_text().replace(str(root), "ROOT"))


@pytest.mark.slow
def test_without_a_skills_folder_the_agent_is_told_the_same_bytes_as_with_skills_switched_off(
    place: Path,
) -> None:
    without = _frames_sent(place / "without", enabled=True)
    switched_off = _frames_sent(place / "off", enabled=False)
    assert '"turn/start"' in without
    assert without == switched_off
    assert "Available skills" not in without


def test_skills_that_are_not_committed_are_told_at_the_start(project: Project) -> None:
    project.workflow()
    project.skill("committed")
    project.commit("Add a skill")
    project.skill("forgotten")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    (told,) = [line for line in daemon.events() if line["event"] == "skills_not_committed"]
    assert told["names"] == [".symphony/skills/forgotten/SKILL.md"]
    assert told["level"] == "warning"
    assert "git add" in told["hint"]


@pytest.mark.parametrize("case", ["all are committed", "switched off"])
def test_nothing_is_told_where_nothing_can_be_said(project: Project, case: str) -> None:
    project.skill("greeting")
    if case == "all are committed":
        project.commit("Add a skill")
    project.workflow(agent={"skills": {"enabled": case != "switched off"}})
    done = project.once()
    assert done.returncode == 0, done.stderr
    assert "skills_not_committed" not in done.stderr


def _user_skill(project: Project, name: str, *, body: str) -> None:
    path = project.root / "home" / ".symphony" / "skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(SKILL.format(name=name, description="The house's own.", body=body), encoding="utf-8")


@pytest.mark.parametrize("switched_off", [False, True])
def test_the_operators_own_skills_are_listed_and_a_repositorys_comes_first(
    project: Project, *, switched_off: bool
) -> None:
    _user_skill(project, "house", body="word: servus")
    _user_skill(project, "greeting", body="word: from the house")
    project.workflow(agent={"skills": {"user_path": None} if switched_off else {}})
    project.skill("greeting", body="word: salut")
    project.commit("A skill of a name that the house has as well")
    name = "greeting" if switched_off else "house"
    project.issue("SYM-1", [{"skill": name, "value_of": "word"}, *READ[1:]])
    daemon = project.once(log_level="debug")
    assert daemon.returncode == 0, daemon.stderr
    listed = daemon.wait_for("skills_listed")["names"]
    assert listed == (["greeting"] if switched_off else ["greeting", "house"])
    assert project.git("show", "symphony/SYM-1:out.txt") == ("salut" if switched_off else "servus")
    hidden = [line["path"] for line in daemon.events() if line["event"] == "skill_shadowed"]
    assert hidden == ([] if switched_off else ["~/.symphony/skills/greeting/SKILL.md"])


def test_a_branch_cannot_rewrite_its_own_instructions(project: Project) -> None:
    project.workflow(agent={"skills": {"source": "base_branch"}})
    project.skill("greeting", body="word: salut")
    project.commit("Add a skill")
    forged = SKILL.format(name="greeting", description="Forged.", body="word: forged")
    rewrite = {"write": ".symphony/skills/greeting/SKILL.md", "text": forged}
    project.issue("SYM-1", [rewrite, {"commit": "Rewrite the skill"}, REVIEW])
    assert project.once().returncode == 0
    assert "Forged" in project.git("show", "symphony/SYM-1:.symphony/skills/greeting/SKILL.md")
    project.issue("SYM-1", READ)
    told = json.loads(project.symphony("prompt", "SYM-1", "--json").stdout)
    assert "Forged" not in told["envelope"]
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    assert project.git("show", "symphony/SYM-1:out.txt") == "salut"
    assert daemon.wait_for("skills_listed")["commit"] == project.git("rev-parse", "main")
    assert daemon.wait_for("skill_seen")["name"] == "greeting"
    assert str(project.workspaces / "SYM-1") not in told["envelope"]


@pytest.mark.slow
def test_the_comment_is_resolved_when_the_last_file_is_mended_and_breaks_again_in_place(
    project: Project,
) -> None:
    project.workflow()
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.commit("A malformed skill")
    project.issue("SYM-1", [REVIEW])
    file = project.workspaces / "SYM-1" / ".symphony" / "skills" / "plain" / "SKILL.md"
    said = []
    for text in (None, "---\nname: plain\ndescription: Mended.\n---\n", "# no front matter\n"):
        if text is not None:
            file.write_text(text)
            assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0
        assert project.once().returncode == 0
        (comment,) = project.comments("SYM-1", kind="skills")
        said.append(("are fixed" in comment, "missing_front_matter" in comment))
    assert said == [(False, True), (True, False), (False, True)]


MEND: list[dict[str, Any]] = [
    {"write": ".symphony/skills/plain/SKILL.md", "text": "---\nname: plain\ndescription: Mended.\n---\n"},
    {"commit": "Mend the skill"},
    DONE,
]


def test_a_file_that_the_work_itself_mends_heals_the_comment_of_an_issue_that_ends_with_it(
    project: Project,
) -> None:
    project.workflow()
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.commit("A malformed skill")
    project.issue("SYM-1", MEND)
    assert project.once().returncode == 0
    assert project.state("SYM-1") == "Done"
    (comment,) = project.comments("SYM-1", kind="skills")
    assert "are fixed" in comment
    assert "missing_front_matter" not in comment


def test_a_file_that_the_work_itself_breaks_is_named_when_the_work_ends(project: Project) -> None:
    project.workflow()
    project.skill("plain")
    project.commit("A skill")
    project.issue("SYM-1", [{**MEND[0], "text": "# no front matter\n"}, {"commit": "Break it"}, DONE])
    assert project.once().returncode == 0
    (comment,) = project.comments("SYM-1", kind="skills")
    assert "missing_front_matter" in comment


@pytest.mark.slow
def test_a_comment_that_could_not_be_edited_is_edited_by_the_next_daemon_though_its_issue_is_done(
    project: Project,
) -> None:
    project.workflow()
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.commit("A malformed skill")
    project.issue("SYM-1", [REVIEW])
    assert project.once().returncode == 0
    folder = project.repo / ".symphony/issues/SYM-1.md"
    project.issue("SYM-1", MEND)
    comments = project.repo / ".symphony/issues/SYM-1/comments"
    aside = comments.with_name("aside")
    comments.rename(aside)
    comments.write_text("a file where the folder should be\n")
    daemon = project.once()
    assert daemon.returncode == 0, daemon.stderr
    daemon.wait_for("job_failed", kind="comment", issue_identifier="SYM-1")
    comments.unlink()
    aside.rename(comments)
    assert "state: Done" in folder.read_text()
    (before,) = project.comments("SYM-1", kind="skills")
    assert "missing_front_matter" in before
    assert project.once().returncode == 0
    (after,) = project.comments("SYM-1", kind="skills")
    assert "are fixed" in after


@pytest.mark.slow
def test_a_comment_that_was_refused_for_a_while_is_written_by_the_daemon_that_serves(
    project: Project,
) -> None:
    """`kill -9` in between: what it was to say is in the journal, and no run looks at the skills again."""
    project.workflow()
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.commit("A malformed skill")
    project.issue("SYM-1", [DONE])
    folder = project.write(".symphony/issues/SYM-1/comments", "a file where the folder should be\n")
    with project.daemon() as daemon:
        daemon.wait_for("job_failed", kind="comment", issue_identifier="SYM-1")
        daemon.wait_for("run_ended")
        daemon.signal(signal.SIGKILL)
        daemon.end()
    folder.unlink()
    with project.daemon() as daemon:
        daemon.wait_for("comment_posted", issue_identifier="SYM-1", kind="skills")
    (comment,) = project.comments("SYM-1", kind="skills")
    assert "missing_front_matter" in comment


@pytest.mark.slow
def test_a_skill_that_is_switched_off_is_not_said_to_be_mended(project: Project) -> None:
    project.workflow()
    project.write(".symphony/skills/plain/SKILL.md", "# no front matter\n")
    project.commit("A malformed skill")
    project.issue("SYM-1", [REVIEW])
    assert project.once().returncode == 0
    said = []
    for skills in ({"disabled_skills": ["plain"]}, {}, {"comment_on": "never"}, {}, {"enabled": False}):
        project.workflow(agent={"skills": skills})
        assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0
        assert project.once().returncode == 0
        (comment,) = project.comments("SYM-1", kind="skills")
        assert "mended" not in comment.lower()
        said.append("missing_front_matter" in comment)
    assert said == [False, True, False, True, False]


def test_what_a_session_was_seen_to_read_is_shown_while_it_runs(project: Project) -> None:
    project.workflow()
    project.skill("greeting", body="word: salut")
    project.skill("other")
    project.commit("Two skills")
    project.issue("SYM-1", [READ[0], {"wait_for": "go"}, DONE])
    with project.daemon() as daemon:
        daemon.wait_for("skill_seen", name="greeting")
        document = json.loads(project.symphony("explain", "SYM-1", "--json").stdout)
        (project.workspaces / "SYM-1" / "go").touch()
        daemon.wait_for("run_ended")
    assert [(one["name"], one["seen"]) for one in document["skills"]["listed"]] == [
        ("greeting", True),
        ("other", False),
    ]
    assert document["skills"]["commit"] == project.git("rev-parse", "HEAD")
    seen = [line["name"] for line in daemon.events() if line["event"] == "skill_seen"]
    assert seen == ["greeting"]
