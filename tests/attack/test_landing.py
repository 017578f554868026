"""Nothing lands unless a person who may write approved exactly this commit, whatever else there is.

Each attack changes a few things of a pull request that is good in every way. What lands is looked at once
more, by plain rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from msgspec import structs

from attack.conftest import Rounds
from harness.verdicts import (
    ANN,
    BOT,
    HEAD,
    IMPOSTOR,
    LAND,
    LISTED,
    ME,
    MINUTE,
    NOW,
    OLD,
    STRANGER,
    at,
    check,
    comment,
    ledger,
    pull,
    review,
    thread,
)
from symphony.domain import Author, CheckState, PullRequest, PullRequestReview, PullState, ReviewState
from symphony.scheduler import ForgePolicy, MergeHead, PullLedger, Verdict, judge_pull

BOB = Author(login="bob", can_write=True)
EVERYBODY = (ANN, BOB, STRANGER, BOT, LISTED, IMPOSTOR, ME)
HEADS = (HEAD, OLD, None, HEAD[:7], HEAD.upper(), f"{HEAD}\n", "")
PROTECTED = frozenset(
    {
        ".github",
        ".gitlab-ci.yml",
        "codeowners",
        "jenkinsfile",
        ".gitmodules",
        "workflow.md",
        "ops.workflow.md",
    }
    | {".symphony", "agents.md", "claude.md", ".claude", ".codex", "skill.md", ".mcp.json", ".cursorrules"}
)
POLICIES = (
    LAND,
    structs.replace(LAND, land_labels=frozenset({"ship"})),
    structs.replace(LAND, base="release"),
    structs.replace(LAND, base=None),
    structs.replace(LAND, land=False),
    structs.replace(LAND, required_checks=("deploy",)),
)


def any_review(random: Random) -> PullRequestReview:
    state = random.choice(("approved", "approved", "changes_requested", "commented"))
    when = random.choice((None, at(NOW - random.randint(2, 60) * MINUTE)))
    return review(state, random.choice(EVERYBODY), sha=random.choice(HEADS), at=when)


def any_file(random: Random) -> str:
    folders = random.choices(("src", "docs", "a b", "é", "...", "x" * 99), k=random.randint(0, 4))
    name = random.choice(("a.py", "agents.py", "workflow-file.md", "README.md"))
    if random.random() < 0.5:
        name = random.choice(sorted(PROTECTED)) + random.choice(("", "/x.md"))
        name = "".join(random.choice((each, each.upper())) for each in name)
    return "/".join((*folders, name))


CHANGES: Mapping[str, Callable[[Random], Any]] = {
    "reviews": lambda random: tuple(any_review(random) for _ in range(random.choice((0, 1, 1, 2, 4)))),
    "files": lambda random: tuple(any_file(random) for _ in range(random.randint(0, 3))),
    "labels": lambda random: random.choice(((), ("ship",), ("Ship",), ("ship-it", "approved"))),
    "base_branch": lambda random: random.choice(("main", "release", "Main", "refs/heads/main", "")),
    "draft": lambda random: random.random() < 0.5,
    "state": lambda random: random.choice(list(PullState)),
    "head_sha": lambda random: random.choice((HEAD, OLD, HEAD.upper())),
    "head_repo": lambda random: random.choice(("octo/site", "Octo/Site", "stranger/site", None)),
    "head_branch": lambda random: random.choice(("symphony/SYM-1", "symphony/SYM-2", "main")),
    "conflicts": lambda random: random.choice((True, False, None)),
    "rules_met": lambda random: random.choice((True, False, None)),
    "complete": lambda random: random.random() < 0.5,
    "changed_lines": lambda random: random.choice((None, 0, 10**9)),
    "threads": lambda random: (
        thread(comment(author=random.choice(EVERYBODY)), resolved=random.random() < 0.5),
    ),
    "checks": lambda random: tuple(
        check(
            random.choice(("test", "deploy")),
            random.choice(list(CheckState)),
            sha=random.choice((HEAD, HEAD, OLD)),
            required=random.random() < 0.7,
        )
        for _ in range(random.randint(0, 4))
    ),
}


def any_pull(random: Random) -> tuple[PullRequest, PullLedger, ForgePolicy, Verdict]:
    few = random.sample(sorted(CHANGES), random.choice((0, 1, 1, 2, 4)))
    changed = {*few, random.choice(("reviews", *few))}
    seen = pull(**{name: CHANGES[name](random) for name in changed})
    known = ledger(pushed_head=random.choice((HEAD, HEAD, HEAD, OLD)), working=random.random() < 0.1)
    policy = random.choice((LAND, LAND, *POLICIES))
    return seen, known, policy, judge_pull(seen, known, policy, NOW)


def may_land(seen: PullRequest, known: PullLedger, policy: ForgePolicy) -> bool:
    """The rules, in plain words."""
    people = [each for each in seen.reviews if each.author.can_write and not each.author.is_bot]
    people = [each for each in people if not each.author.is_me]
    required = [each for each in seen.checks if each.required or each.name in policy.required_checks]
    parts = {part.lower() for name in seen.files for part in name.split("/")}
    in_order = sorted(people, key=lambda each: each.at or at(NOW))
    votes = {each.author.login: each for each in in_order if each.state is not ReviewState.COMMENTED}
    return (
        any(each.state is ReviewState.APPROVED and each.sha == seen.head_sha for each in votes.values())
        and all(each.state is ReviewState.APPROVED for each in votes.values())
        and seen.base_branch == policy.base
        and seen.files != ()
        and parts.isdisjoint(PROTECTED)
        and policy.land_labels <= set(seen.labels)
        and (seen.state, seen.draft, seen.complete) == (PullState.OPEN, False, True)
        and (seen.conflicts, seen.head_branch) == (False, known.branch)
        and (seen.head_repo or "").lower() == policy.repo
        and seen.rules_met is not False
        and seen.head_sha == known.pushed_head
        and all(each.resolved for each in seen.threads)
        and any(each.state is CheckState.PASSED and each.sha == seen.head_sha for each in required)
        and not any(each.state is CheckState.FAILED and each.sha == seen.head_sha for each in required)
        and policy.land
        and not known.working
    )


def test_what_lands_was_approved_by_a_person_at_this_commit(rounds: Rounds) -> None:
    landed = 0
    for random in rounds(100):
        for _ in range(40):
            seen, known, policy, verdict = any_pull(random)
            if isinstance(verdict, MergeHead):
                assert verdict.head == seen.head_sha
                assert may_land(seen, known, policy)
                landed += 1
    assert landed > 0


def test_a_good_one_lands_whatever_others_say_and_its_files_are_called(rounds: Rounds) -> None:
    for random in rounds():
        files = tuple(f"{random.choice(('src', 'docs', 'é'))}/{random.randbytes(4).hex()}.py" for _ in "abc")
        others = [replace(any_review(random), author=random.choice((STRANGER, IMPOSTOR, ME))) for _ in "abc"]
        seen = pull(files=files, reviews=(*others, review(author=BOB)), labels=("x",) * random.randint(0, 2))
        assert judge_pull(seen, ledger(), LAND, NOW) == MergeHead(HEAD)
