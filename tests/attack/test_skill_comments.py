"""Attacks on the comment about skills, by files of a branch.

Promise: whatever names and texts the files have, and however many there are, an issue has one comment about
them, of at most 4,000 bytes, in which nothing is a mention, a reference, markup, a quick action or text of a
file. The skills of one branch change neither the comment nor the list of another issue.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from anyio import to_thread
from anyio.lowlevel import checkpoint

from harness.binding import CommentingTracker, make_context
from harness.outbox import Outbox
from harness.scheduling import make_issue
from symphony import skills
from symphony.daemon.comments import SkillComments
from symphony.skills import MEANINGS, Severity, SkillOptions, SkillSet, comment_body, named_problems
from symphony.skills import resolved_body as over

Rounds = Callable[..., Iterator[Random]]
ROOT = ".symphony/skills"
PIECES = (
    "@everyone", "#1", "!7", "%2", "~bug", "GH-1", "/close", "\n/close", "\r\n/assign @me\n", "`",
    "~~~",
    "```sh\n", "-->", "<script>", "<details>", "</details>", "<a href=x>",
    "<!-- symphony:skills v1 key=0 fp=0 -->",
    "[a](http://evil.example)", "![i](x)", "http://evil.example", "www.evil.example", "|", "*", "__", "# H",
    "\n# H\n", "> q", "- x", "1. x", "\t", "\u2028", "\u202e", "\u200b", "\x1b[31m", "\x00", "\x85",
    "{{ x }}", "{% raw %}", "$(id)", "\\", "\\`", "&lt;", "&#64;all", "日本", "é", "a" * 90, ":tada:",
    "[ ]", "[[w]]", "^fn",
)  # fmt: skip
SAYS = "text-of-the-file"
HEADS = (
    "no front matter",
    "---\nname: {0}\ndescription: " + SAYS + "\n---",
    "---\ndescription: {0}" + SAYS + "\n---",
    "---\nname: [{0}" + SAYS + "\n---",
    "---\nname: x\nname: {0}\n---",
    "---\nname: twin\ndescription: {0}" + SAYS + "\n---",
    "---\n{0}",
    "---\nname: fine\ndescription: " + SAYS + "\n---",
)
LINE = re.compile(r"- `([^`]+)`(?: `[a-z0-9_]+`(?: at \d+:\d+)?: (.+))?|- and \d+ more")
SENTENCES = {f"{meaning.message} {meaning.hint}" for meaning in MEANINGS.values()}


def hostile(random: Random, size: int = 6) -> str:
    return "".join(random.choice(PIECES) for _ in range(random.randint(1, size)))


def put(workspace: Path, name: str, text: str) -> bool:
    """A skill whose directory has this name, unless no file system takes it."""
    name = name.replace("/", "\u2215").replace("\x00", "")[:80].lstrip(".") or "x"
    directory = workspace / ROOT / name
    try:
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(text, encoding="utf-8", errors="replace", newline="")
    except OSError:
        return False
    return True


def fill(workspace: Path, random: Random) -> SkillSet:
    for _ in range(random.randint(1, 24)):
        put(workspace, hostile(random), random.choice(HEADS).replace("{0}", hostile(random)))
    return skills.load(workspace, SkillOptions())


def assert_inert(body: str) -> None:
    assert len(body.encode()) <= 4_000
    assert SAYS not in body
    for line in body.split("\n"):
        assert not line or line.startswith(
            ("**", "The work continues", "These are", "No longer", "Mended:", "- ")
        )
        if line.startswith("- "):
            match = LINE.fullmatch(line)
            assert match is not None, line
            odd = [one for one in match[1] or "" if not (one.isalnum() or one in "/ .%…-_")]
            assert odd == [], line
            assert match[2] is None or match[2] in SENTENCES
    assert not re.search(r"[@#<>\[\]|{}~!\\\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", body)


def test_whatever_the_files_hold_the_comment_is_small_and_does_nothing(
    rounds: Rounds, tmp_path: Path
) -> None:
    for number, random in enumerate(rounds()):
        found = fill(tmp_path / str(number), random)
        at_least = random.choice([Severity.ERROR, Severity.WARNING, Severity.INFO])
        body = comment_body(found.problems, at_least=at_least)
        named = named_problems(found.problems, at_least=at_least)
        assert (body is None) is (named == ())
        assert_inert(body or "")
        for path, code in named:
            assert f"`{path}` `{code}`" in str(body)
        assert_inert(over(named, random.choice([found, SkillSet(root=tmp_path)])))


def test_thousands_of_malformed_files_are_one_small_comment(tmp_path: Path) -> None:
    for number in range(2_100):
        put(tmp_path, f"@all #{number} " + "x" * 40, "no front matter")
    found = skills.load(tmp_path, SkillOptions())
    body = str(comment_body(found.problems))
    assert_inert(body)
    shown = body.count("\n- `")
    assert shown <= 20
    assert body.endswith(f"\n- and {len(found.problems) - shown} more")


@pytest.mark.asyncio
async def test_the_skills_of_one_branch_change_neither_comment_nor_list_of_another_issue(
    rounds: Rounds, tmp_path: Path
) -> None:
    quiet, calm = tmp_path / "quiet", "---\nname: calm\ndescription: Calm.\n---\n"
    tracker = CommentingTracker()
    context = make_context(tmp_path, tracker)
    outbox = Outbox(context)
    comments = SkillComments(outbox.jobs, record=lambda _: None, recorded=checkpoint)

    def calmly() -> SkillSet:
        put(quiet, "calm", calm)
        put(quiet, "broken", "no front matter")
        return skills.load(quiet, SkillOptions())

    def loudly(workspace: Path, random: Random) -> tuple[SkillSet, SkillSet]:
        put(workspace, "calm", calm)  # the very same bytes
        return fill(workspace, random), skills.load(quiet, SkillOptions())

    async def report(number: str, found: SkillSet) -> None:
        await comments.update(context, make_issue(number), found, at_least=Severity.ERROR)
        await outbox.once()

    alone = await to_thread.run_sync(calmly)
    block = skills.render(alone, SkillOptions()).text
    await report("1", alone)
    ((first, said),) = tracker.comments.items()
    for number, random in enumerate(rounds(10)):
        found, again = await to_thread.run_sync(loudly, tmp_path / f"loud-{number}", random)
        assert again == alone
        assert skills.render(again, SkillOptions()).text == block
        await report("2", found)
        await report("1", again)
        assert tracker.comments[first] == said
        assert len(tracker.comments) <= 2
