"""The daemon's own comments carry nobody's live text: no mention, picture, link, markup or command.

What an agent, a service or a repository wrote stands in a fence that it cannot close, and where the service
knows no fences the signs are broken by which something begins. Commands can be pasted into a shell.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import anyio
import pytest

from attack.conftest import Rounds
from contract.desks import DESKS
from harness.scheduling import Story, make_failure, make_issue
from symphony.domain import Category, DeliveredBranch, Failure, WorkSize
from symphony.scheduler import (
    Blocked,
    Outcome,
    OutcomeKind,
    PostComment,
    RunEnded,
    block_comment,
)
from symphony.services.gitlab import without_quick_actions
from symphony.skills import Code, Problem, Severity, comment_body
from symphony.trackers.adf import document_of
from symphony.trackers.comments import upsert_comment, without_markup

LIVE = (
    "@acme/everyone", "![x](https://evil.example/b.png)", "[log in](https://evil.example)", "closes #5",
    "<img src=https://evil.example/x.png>", "<!--", "/close", "/move other/project",
    "!https://evil.example/x.png!", '"log in":https://evil.example', "[[Wiki]]", "{{include(Secret)}}",
    "<script>alert(1)</script>", "[~accountid:1]",
)  # fmt: skip
FRAMES = (
    "```", "````", "~~~", "`", "\n", "\r\n", "\u2028", "\n\n", "    ", "> ", "-->", "\x1b[2J", "\u202e",
    "---\n",
)  # fmt: skip
MARK = "LIVE"


def hostile(random: Random) -> str:
    parts = [random.choice((*LIVE, *FRAMES, *FRAMES, "`" * random.randrange(40))) for _ in range(14)]
    return "".join(f"{part}{MARK if part in LIVE else ''}" for part in [*parts, random.choice(LIVE)])


def outside(body: str) -> Iterator[str]:
    """The lines that are in no fence, as CommonMark has fences."""
    fence = ""
    for line in body.splitlines():
        opened = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if not fence and opened:
            fence = opened[1]
        elif fence and opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        elif not fence:
            yield line
    assert not fence, "a fence is left open"


def inside(body: str) -> str:
    lines = list(outside(body))
    return "\n".join(line for line in body.splitlines() if line not in lines)


def notes(random: Random) -> Iterator[str]:
    """Every kind of comment of the daemon that holds words of others."""
    text = hostile(random)
    issue = make_issue("1", identifier=f"A$(touch pwn)`id`{random.choice(LIVE)}")
    question = random.choice([None, text])
    for category in (Category.TURN_FAILED, Category.TURN_INPUT_REQUIRED):
        failure = replace(make_failure(text), category=category, hint=hostile(random))
        yield blocked(issue=issue, failure=failure, question=question)
    yield delivery(text, issue)


def blocked(*, issue: Any, failure: Failure, question: str | None) -> str:
    return block_comment(
        Blocked(issue=issue, failure=failure, blocked_ms=0, report=None, question=question)
    ).body


def delivery(text: str, issue: Any) -> str:
    story = Story(issue).begin()
    delivered = DeliveredBranch(
        work=WorkSize(commits=1), branch="symphony/1", head="a" * 40, push_failure=make_failure(text)
    )
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, delivered=delivered)
    story.board[issue.id] = replace(issue, state="Human Review")
    story.tell(RunEnded(run_id=story.run_id(), outcome=outcome))
    story.advance(100_000)
    return next(one.body for one in story.said(PostComment) if one.kind == "delivery")


def test_what_others_wrote_is_in_a_fence(rounds: Rounds) -> None:
    for random in rounds():
        for body in notes(random):
            told = "\n".join(outside(body))
            assert MARK not in told
            assert not any(sign in told for sign in ("@acme", "evil.example", "<!--", "touch pwn"))


@pytest.mark.parametrize("identifier", ["A$(touch pwn)`id`", "a b", "it's", "SYM-1; rm x", "`" * 9, "-x\"'"])
def test_a_command_can_be_pasted_into_a_shell(identifier: str) -> None:
    failure = make_failure("which?", category=Category.TURN_INPUT_REQUIRED)
    issue = make_issue("1", identifier=identifier)
    body = blocked(issue=issue, failure=failure, question="which?")
    (line,) = (line for line in body.splitlines() if line.startswith("symphony answer"))
    assert shlex.split(line) == ["symphony", "answer", identifier, "…"]
    (line,) = (line for line in delivery("no", issue).splitlines() if line.startswith("symphony diff"))
    assert shlex.split(line) == ["symphony", "diff", identifier]


def words(node: Any) -> Iterator[str]:
    """The texts of a document of Jira that are in no block of code."""
    if isinstance(node, dict):
        if node.get("type") == "codeBlock":
            return
        if isinstance(node.get("text"), str):
            yield node["text"]
        for value in node.values():
            yield from words(value)
    elif isinstance(node, list):
        for each in node:
            yield from words(each)


def test_the_path_of_a_skill_is_no_more_than_a_path(rounds: Rounds) -> None:
    for random in rounds():
        path = f".symphony/skills/{hostile(random)}/SKILL.md"
        problem = Problem(
            path=path, severity=Severity.ERROR, code=next(iter(Code)), line=1, column=1, message="", hint=""
        )
        (entry,) = (line for line in (comment_body([problem]) or "").splitlines() if line.startswith("- "))
        assert not re.search(r"[@#!<\[{]|://", entry)


def test_the_dialects_keep_it_there(rounds: Rounds) -> None:
    for random in rounds():
        for body in notes(random):
            assert not any(line.startswith("/") for line in without_quick_actions(body).splitlines())
            assert MARK not in "".join(outside(without_quick_actions(body)))
            assert MARK not in "".join(words(document_of(body)))
            plain = inside(without_markup(body))
            assert not re.search(r"@acme|https://|#5|<!--|<img|!\[|\[\[|\{\{", plain)


@pytest.mark.parametrize("kind", DESKS)
def test_every_service_is_sent_nothing_that_lives_there(kind: str, rounds: Rounds) -> None:
    async def once(random: Random) -> None:
        desk = DESKS[kind]()
        issue_id = desk.put(1)
        body = blocked(
            issue=make_issue("1"),
            failure=make_failure(hostile(random)),
            question=hostile(random),
        )
        await upsert_comment(desk.tracker, issue_id, kind="blocked", scope="s", fingerprint="f", body=body)
        (comment,) = await desk.tracker.list_comments(issue_id)
        assert MARK not in "\n".join(outside(comment.body))
        if not desk.tracker.flows.service.has_code_fences:
            assert not re.search(r"@acme|https://|#5|<img|!\[|\[\[|\{\{", comment.body)
        if kind.startswith("gitlab"):
            assert not any(line.startswith("/") for line in comment.body.splitlines())

    for random in rounds(5):
        anyio.run(once, random)


def test_an_agents_own_words_are_left_as_they_are() -> None:
    async def once() -> None:
        desk = DESKS["redmine"]()
        desk.put(1)
        (issue,) = await desk.tracker.fetch_issues_by_states([desk.todo])
        said = "```python\n@decorator\nx = [1]\n```"
        await desk.tracker.execute_agent_tool("issue_comment", {"body": said}, issue=issue)
        (comment,) = await desk.tracker.list_comments(issue.id)
        assert comment.body.endswith(said)

    anyio.run(once)
