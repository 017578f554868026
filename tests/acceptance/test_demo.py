"""Promise: `symphony demo` is the real daemon on a real repository, and says when no model is involved."""

import json
import signal
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from harness.project import DEADLINE_S, SYMPHONY, Project

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `symphony demo --dir … --json` told; it is only looked at."""
    project = Project(root=tmp_path_factory.mktemp("demo")).create()
    place = project.root / "demo"
    done = project.symphony("demo", "--dir", str(place), "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["dir"] == str(place)
    return result


def test_the_demo_ends_with_commits_on_branches_and_one_comment(
    project: Project, shown: dict[str, Any]
) -> None:
    result, place = shown, Path(shown["dir"])
    assert result["ok"] is True
    issues = {issue["identifier"]: issue for issue in result["issues"]}
    assert {name: issue["state"] for name, issue in issues.items()} == dict.fromkeys(
        ["DEMO-1", "DEMO-2", "DEMO-3", "DEMO-4"], "Done"
    )
    assert issues["DEMO-3"]["turns"] == 3, "this one needs two turns, and one to fix what they broke"
    assert issues["DEMO-3"]["commits"] == 3
    for name, issue in issues.items():
        assert issue["branch"] == f"symphony/{name}"
        log = project.git("log", "--format=%s", f"main..{issue['branch']}", cwd=place / "repo")
        assert len(log.splitlines()) == issue["commits"] >= 1
        assert name in log
    reports = [each for each in result["comments"] if each["mine"] and "symphony:skills" in each["body"]]
    assert reports, "the malformed skill is named on the board"
    for report in reports:
        assert ".symphony/skills/release-notes/SKILL.md" in report["body"]
        assert "missing_name" in report["body"]
    assert len({report["issue_identifier"] for report in reports}) == len(reports), "one comment per issue"


def test_the_blocked_issue_started_only_after_its_blocker_was_done(shown: dict[str, Any]) -> None:
    log = Path(shown["dir"]) / "symphony.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    order = [
        (line["event"], line["issue_identifier"])
        for line in lines
        if line["event"] in {"run_started", "run_ended"}
    ]
    assert order.index(("run_ended", "DEMO-1")) < order.index(("run_started", "DEMO-2"))


def test_a_failure_is_sent_back_and_fixed_by_the_same_conversation(shown: dict[str, Any]) -> None:
    log = Path(shown["dir"]) / "symphony.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    results = [
        line["result"] for line in lines if line["event"] == "verified" and "DEMO-3" in line["issue_id"]
    ]
    assert results == ["failed", "passed"]
    assert [line["reason"] for line in lines if line["event"] == "thread_resumed"] == ["verify_failed"]


@pytest.mark.slow
def test_people_are_told_what_happens_and_what_to_do_next_and_nothing_is_left(project: Project) -> None:
    temporary = project.root / "temporary"
    temporary.mkdir()
    project.environment["TMPDIR"] = str(temporary)
    done = project.symphony("demo")
    assert done.returncode == 0, done.stderr
    assert list(temporary.iterdir()) == []
    assert "no model is involved" in done.stdout
    assert "DEMO-3   not verified, sent back" in done.stdout
    assert "Comment on" in done.stdout
    assert "Next, in your own repository: symphony init" in done.stdout
    shown = README.split("<!-- demo:begin -->")[1].split("<!-- demo:end -->")[0].strip("`\n")
    assert shown in done.stdout, "the README shows what really comes out"
    comment = README.split("<!-- demo-comment:begin -->")[1].split("<!-- demo-comment:end -->")[0]
    problem = next(line.removeprefix("> ") for line in comment.splitlines() if "SKILL.md" in line)
    assert problem in done.stdout, "and its one comment"
    assert "Scripted agent: no model is involved." not in done.stderr


def test_the_readme_shows_a_diff_that_the_demo_makes(project: Project, shown: dict[str, Any]) -> None:
    repo = Path(shown["dir"]) / "repo"
    diff = project.git("diff", "main...symphony/DEMO-1", "--", "src", cwd=repo)
    assert (
        README.split("<!-- demo-diff:begin -->")[1].split("<!-- demo-diff:end -->")[0].strip("`dif\n") in diff
    )


def test_a_directory_with_something_in_it_is_not_touched(project: Project) -> None:
    done = project.symphony("demo", "--dir", str(project.repo))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.slow
def test_a_demo_that_is_interrupted_says_what_is_not_done_instead_of_printing_its_log(
    project: Project,
) -> None:
    (project.root / "home").mkdir()
    with subprocess.Popen(
        [*SYMPHONY, "demo"], cwd=project.repo, env=project.env(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "started:" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 1
    assert "Not everything finished:" in rest
    assert "DEMO-2 is in Todo" in rest, "it waits for DEMO-1"
    assert '"event"' not in rest
    assert "--dir" in rest


@pytest.mark.slow
def test_with_its_page_the_demo_stays_until_its_input_ends(project: Project) -> None:
    project.environment.update(BROWSER="", DISPLAY="", WAYLAND_DISPLAY="")
    with subprocess.Popen(
        [*SYMPHONY, "demo", "--page"],
        cwd=project.repo,
        env=project.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before_the_end = takewhile(lambda line: not line.startswith("All is done."), process.stdout)
        (link,) = [line.split()[-1] for line in before_the_end if "/sign-in?link=" in line]
        address = urlsplit(link)
        base_url, host = f"http://127.0.0.1:{address.port}", {"host": address.netloc}
        with httpx.Client(
            transport=httpx.HTTPTransport(verify=False), base_url=base_url, headers=host, timeout=DEADLINE_S
        ) as client:
            signed_in = client.post("/sign-in", data={"link": link.partition("link=")[2]})
            cookie = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
            shown = client.get(signed_in.headers["location"], headers=cookie)
        assert (shown.status_code, "<title>Board" in shown.text) == (200, True)
        process.stdin.close()
        assert "Next, in your own repository" in process.stdout.read()
    assert process.returncode == 0


@pytest.mark.slow
def test_the_demo_shows_how_feedback_makes_a_skill_better(project: Project) -> None:
    place = project.root / "demo"
    done = project.symphony("demo", "--learn", "--dir", str(place), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ok"], result["learned"]) == (True, {"skill": "house-style", "version": 2})
    assert "+ - Run the tests before you commit." in done.stderr
    assert {issue["state"] for issue in result["issues"]} == {"Done"}
    both = project.symphony("demo", "--learn", "--page")
    assert both.returncode == 2
