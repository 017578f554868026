"""Promise: finished work is sent back with remarks on its lines, or approved and merged, as it was shown."""

import json
import sys
from typing import Any

import pytest

from harness.project import Project
from published.schemas import conforms_to

REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}


def work(text: str, name: str) -> list[dict[str, Any]]:
    return [{"write": name, "text": text}, {"commit": "work"}, REVIEW]


def test_one_issue_is_sent_back_and_one_is_merged(project: Project) -> None:
    project.workflow(review={"merge": True})
    project.issue("SYM-1", work("one\n", "a.txt"))
    project.issue("SYM-2", work("two\n", "b.txt"))
    with project.daemon() as daemon:
        for name in ("SYM-1", "SYM-2"):
            daemon.wait_for("work_ready", issue_identifier=name)

        early = project.symphony("review", "SYM-1", "--approve")
        assert (early.returncode, "hint:" in early.stderr) == (1, True), "it was not shown yet"
        shown = project.symphony("review", "sym-1")
        assert ("a.txt" in shown.stdout, "symphony/SYM-1" in shown.stdout) == (True, True)
        given = ("--comment", "a.txt:1", "Write it large", "--message", "Almost", "--send-back")
        back = project.symphony("review", "SYM-1", *given, "--json")
        assert back.returncode == 0, back.stderr
        conforms_to("review", json.loads(back.stdout))
        daemon.wait_for("review_carried_out", issue_identifier="SYM-1", decision="send_back")
        daemon.wait_for("run_started", issue_identifier="SYM-1", attempt_number=1)

        conforms_to("review", json.loads(project.symphony("review", "SYM-2", "--json").stdout))
        done = project.symphony("review", "SYM-2", "--approve")
        assert (done.returncode, "merged into main" in done.stdout) == (0, True), done.stderr
        again = project.symphony("review", "SYM-2", "--approve")
        assert again.returncode == 1
        for wrong in (
            ["--send-back", "--approve"],
            ["--comment", "a.txt:1", "\udcff", "--send-back"],
            ["--comment", "a.txt", "x", "--send-back"],
            ["--message", "x"],
            ["--head", "abc"],
        ):
            assert project.symphony("review", "SYM-1", *wrong).returncode == 2
        nobody = project.symphony("review", "SYM-9")
    assert (nobody.returncode, "there is no issue" in nobody.stderr) == (1, True)
    (said,) = project.comments("SYM-1", kind="person")
    assert all(part in said for part in ("Almost", "a.txt:1", "one", "Write it large"))
    assert (project.written_state("SYM-2"), (project.repo / "b.txt").read_text()) == ("Done", "two\n")
    assert project.git("rev-parse", "main") == project.git("rev-parse", "symphony/SYM-2")


@pytest.mark.slow
def test_a_file_with_any_name_is_commented_on_and_a_binary_one_has_no_lines(project: Project) -> None:
    """The name is given as its bytes, as a shell completes it, or as the review shows it."""
    make = r"""for name in (b"odd\xff\x1b", b"other"): open(name, "wb").write(b"one\n")
open("picture", "wb").write(bytes(range(256)))"""
    project.issue("SYM-1", [{"run": [sys.executable, "-c", make]}, {"commit": "work"}, REVIEW])
    project.workflow(agent={"max_concurrent_agents": 1})
    with project.daemon() as daemon:
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        assert r"odd\xff\x1b" in project.symphony("review", "SYM-1").stdout
        refused = project.symphony("review", "SYM-1", "--comment", "picture:1", "x", "--send-back")
        assert (refused.returncode, "binary" in refused.stderr) == (1, True)
        given = ("--comment", "odd\udcff\x1b:1", "By its bytes", "--comment", "other:1", "Ok", "--send-back")
        done = project.symphony("review", "SYM-1", *given)
        assert done.returncode == 0, done.stderr
    (said,) = project.comments("SYM-1", kind="person")
    assert r"odd\xff\x1b:1" in said
