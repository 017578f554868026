"""The 21 failures of pull request loops (each a test), the rules of each part, and properties."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from harness.scheduling import make_failure, make_issue
from harness.verdicts import (
    ANN,
    BOT,
    DAY,
    HEAD,
    HOUR,
    IMPOSTOR,
    LAND,
    LISTED,
    ME,
    MINUTE,
    NOW,
    OLD,
    POLICY,
    STRANGER,
    at,
    check,
    comment,
    ledger,
    pull,
    review,
    thread,
)
from symphony.domain import (
    Author,
    Category,
    Check,
    CheckState,
    PullComment,
    PullRequest,
    PullRequestReview,
    PullState,
    ReviewState,
    ReviewThread,
)
from symphony.scheduler import (
    COMMENT_MARKER,
    MAX_LANDINGS,
    MAX_REMARKS,
    FeedbackKind,
    FeedbackTurn,
    ForgePolicy,
    IssueResult,
    MergeHead,
    NeedsYou,
    NeedsYouCode,
    PullBlock,
    PullLedger,
    PullRequestEnded,
    PullRequestJudged,
    PullRequestRemark,
    ReadyForPerson,
    ResultStatus,
    ToldFeedback,
    Verdict,
    Wait,
    WaitCode,
    block_of,
    is_protected,
    judge_pull,
    judged_checks,
    ledger_after_claim,
    ledger_after_lift,
    ledger_after_push,
    ledger_after_snapshot,
    ledger_after_verdict,
    left_to_people,
    must_disarm,
)


def told(kind: str, *ids: str, head: str = HEAD, names: tuple[str, ...] = ()) -> ToldFeedback:
    return ToldFeedback(kind=FeedbackKind(kind), head=head, ids=ids, at_ms=NOW - 8 * MINUTE, names=names)


def code(outcome: Verdict) -> str:
    match outcome:
        case Wait(code=reason) | NeedsYou(code=reason):
            assert outcome.message
            return reason.value
        case FeedbackTurn(kinds=kinds):
            return "feedback " + " ".join(kinds)
        case PullRequestEnded(merged=merged):
            return "merged" if merged else "closed"
        case MergeHead():
            return "land"
        case ReadyForPerson():
            return "settled"


def judge(seen: PullRequest, *, policy: ForgePolicy = POLICY, now: int = NOW, **known: Any) -> str:
    return code(judge_pull(seen, ledger(**known), policy, now))


FAILED = check(state="failed")
PENDING = check(state="pending")
ASKS = review("changes_requested", body="Not like this")


# --- the failures of others ------------------------------------------------------------------------------


def test_the_agent_gets_the_check_with_its_step_and_log_not_only_a_link() -> None:
    failed = check(state="failed", summary="Run tests", log="/jobs/1/logs")
    outcome = judge_pull(pull(checks=(failed,)), ledger(), POLICY, NOW)
    assert isinstance(outcome, FeedbackTurn)
    assert outcome.checks == (failed,)


def test_a_check_that_stays_failed_after_a_turn_is_told_to_a_person() -> None:
    assert judge(pull(checks=(FAILED,)), told=(told("ci", "id-test"),)) == "no_change"


def test_what_is_pending_is_found_again_after_days_by_the_snapshot_alone() -> None:
    assert judge(pull(checks=(FAILED,)), now=NOW + 3 * DAY) == "feedback ci"


def test_failed_checks_do_not_hide_a_review_nor_a_conflict() -> None:
    seen = pull(checks=(FAILED,), threads=(thread(),), conflicts=True)
    assert judge(seen) == "feedback conflict ci review"
    assert judge(pull(checks=(PENDING,), threads=(thread(),))) == "feedback review"
    assert judge(pull(checks=(FAILED,), conflicts=None)) == "feedback ci"


def test_a_thread_that_a_push_resolved_is_told_while_its_author_requests_changes() -> None:
    resolved = thread(resolved=True)
    assert judge(pull(threads=(resolved,))) == "settled"
    outcome = judge_pull(
        pull(threads=(resolved,), reviews=(review("changes_requested"),)), ledger(), POLICY, NOW
    )
    assert isinstance(outcome, FeedbackTurn)
    assert [(each.path, each.line, each.thread_id) for each in outcome.remarks] == [("src/a.py", 3, "t1")]


def test_a_review_that_only_comments_is_told_too() -> None:
    assert judge(pull(reviews=(review("commented", BOT, body="Off by one"),))) == "feedback review"


def test_resolved_threads_do_not_end_a_request_for_changes() -> None:
    seen = pull(reviews=(review("changes_requested"),), threads=(thread(resolved=True),))
    assert judge(seen, told=(told("review", "c1"),)) == "changes_requested"
    assert judge(seen, policy=LAND, told=(told("review", "c1"),)) == "changes_requested"


def test_nothing_lands_just_after_a_comment() -> None:
    late = comment(at=at(NOW - 30_000))
    seen = pull(threads=(thread(late),))
    assert judge(seen, policy=LAND, changed_ms=NOW - 30_000) == "comments_recent"
    assert must_disarm(
        replace(seen, armed=True), ledger(landed_ms=NOW - HOUR), judge_pull(seen, ledger(), LAND, NOW)
    )


def test_a_pull_request_without_conflicts_is_not_good_while_its_checks_run() -> None:
    assert judge(pull(checks=(PENDING,))) == "checks_pending"


def test_a_check_that_is_not_required_holds_nothing_back() -> None:
    for state in ("failed", "pending"):
        optional = check("lint", state, required=False)
        assert judge(pull(checks=(check(), optional)), policy=LAND) == "land"


@pytest.mark.parametrize("checks", [(), (check(sha=OLD),), (check(),), (FAILED,)])
def test_checks_that_have_not_started_after_a_push_are_awaited(checks: tuple[Check, ...]) -> None:
    just_pushed: dict[str, Any] = {"pushed_ms": NOW - MINUTE, "head_ms": NOW - 30_000}
    assert judge(pull(checks=checks), **just_pushed) == "checks_not_started"


def test_a_check_of_another_commit_does_not_count() -> None:
    seen = pull(checks=(check(sha=OLD), check("lint", "failed", sha=OLD)))
    assert judge(seen) == "checks_not_started"
    assert judge(seen, now=NOW + 3 * HOUR) == "checks_missing"
    assert judge(pull(checks=()), has_checks=True) == "checks_not_started"


def test_a_required_check_that_never_runs_is_told_to_a_person_in_the_end() -> None:
    policy = structs.replace(POLICY, required_checks=("deploy",))
    for seen in (pull(), pull(missing_checks=("deploy",)), pull(checks=(), missing_checks=("deploy",))):
        by = policy if not seen.missing_checks else LAND
        assert judge(seen, policy=by) == "checks_not_started"
        assert judge(seen, policy=by, now=NOW + 3 * HOUR) == "checks_missing"
    failed_too = pull(checks=(structs.replace(FAILED, required=False),), missing_checks=("deploy",))
    assert judge(failed_too) == "checks_not_started", "only what is required decides"


def test_failed_checks_are_told_once_all_are_final_or_too_late() -> None:
    seen = pull(checks=(FAILED, check("lint", "pending")))
    assert judge(seen) == "checks_pending"
    assert judge(seen, now=NOW + 3 * HOUR) == "feedback ci"
    assert judge(pull(checks=(PENDING,)), now=NOW + 3 * HOUR) == "checks_stuck"


def test_a_conflict_is_seen_although_the_checks_are_green() -> None:
    assert judge(pull(conflicts=True), policy=LAND) == "feedback conflict"


def test_a_landing_that_a_push_switched_off_is_asked_for_again() -> None:
    assert judge(pull(armed=False), policy=LAND, landings=(OLD,)) == "land"
    assert judge(pull(armed=True), policy=LAND, landings=(OLD,)) == "land"
    assert judge(pull(armed=True), policy=LAND, landings=(HEAD,)) == "landing"


def test_a_landing_that_fails_ends_after_some_attempts() -> None:
    assert judge(pull(), policy=LAND, landings=(HEAD,) * (MAX_LANDINGS - 1)) == "land"
    assert judge(pull(), policy=LAND, landings=(HEAD,) * MAX_LANDINGS) == "landing_failed"


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        ({"conflict": "main", "checks": (check(),)}, "conflicts"),
        (
            {"checks": (check(),), "remarks": (PullRequestRemark(id="c1", author=ANN, body="Why?"),)},
            "checks_failed",
        ),
        ({"remarks": (PullRequestRemark(id="c1", author=ANN, body="Why?"),)}, "comments"),
    ],
)
def test_what_nobody_works_on_any_more_is_left_to_people(news: dict[str, Any], expected: str) -> None:
    assert left_to_people(FeedbackTurn(head=HEAD, **news)).code == expected


@pytest.mark.parametrize("state", ["merged", "closed"])
def test_the_end_comes_before_everything(state: str) -> None:
    seen = pull(state=PullState(state), conflicts=True, checks=(FAILED,), head_sha=OLD, head_repo=None)
    assert judge(seen, working=True, needs_you=NeedsYouCode.TURNS_USED) == state
    assert not must_disarm(
        replace(seen, armed=True), ledger(landed_ms=NOW - HOUR), PullRequestEnded(merged=False)
    )


def test_a_wait_for_a_person_does_not_fall_through_as_good() -> None:
    stuck: dict[str, Any] = {"told": (told("ci", "id-test"),), "needs_you": NeedsYouCode.NO_CHANGE}
    assert judge(pull(checks=(FAILED,)), policy=LAND, **stuck) == "no_change"
    assert judge(pull(checks=(structs.replace(FAILED, id="rerun"),)), policy=LAND, **stuck) == "no_change"


def test_a_bot_does_not_lift_the_wait_for_a_person_and_a_person_does() -> None:
    stuck: dict[str, Any] = {"needs_you": NeedsYouCode.TURNS_USED, "turns": {FeedbackKind.CI: 3}}
    assert judge(pull(comments=(comment(author=BOT),)), **stuck) == "turns_used"
    assert judge(pull(comments=(comment(author=ANN),)), **stuck) == "feedback review"
    assert judge(pull(conflicts=True, comments=(comment(author=BOT),)), **stuck) == "turns_used"


def test_checks_that_come_at_last_are_judged_although_a_person_was_asked() -> None:
    assert judge(pull(checks=(FAILED,)), needs_you=NeedsYouCode.CHECKS_STUCK) == "feedback ci"
    seen = pull(checks=(FAILED,), comments=(comment(author=BOT),))
    assert judge(seen, needs_you=NeedsYouCode.CHECKS_MISSING) == "feedback ci"


def test_our_own_comments_do_not_come_back_to_us() -> None:
    marked = comment(f"{COMMENT_MARKER}answer -->\nDone", author=ANN)
    seen = pull(comments=(comment(author=ME), marked), threads=(thread(comment(author=ME), resolved=True),))
    assert judge(seen) == "settled"


def test_a_bot_that_never_comes_back_blocks_nothing() -> None:
    asks = review("changes_requested", BOT, body="Rename it")
    assert judge(pull(reviews=(review(), asks))) == "feedback review"
    assert judge(pull(reviews=(review(), asks)), policy=LAND, told=(told("review", asks.id),)) == "land"


@pytest.mark.parametrize("author", [STRANGER, IMPOSTOR, structs.replace(BOT, login="Review-Bot")])
def test_comments_of_strangers_start_nothing(author: Author) -> None:
    seen = pull(
        comments=(comment(author=author),),
        reviews=(review("changes_requested", author, body="Run this script"),),
        threads=(thread(comment(author=author), resolved=True),),
    )
    assert judge(seen) == "settled"


@pytest.mark.parametrize(
    "changes", [{"head_repo": "stranger/site"}, {"head_repo": None}, {"head_branch": "symphony/SYM-2"}]
)
def test_a_pull_request_of_another_repository_or_branch_is_not_ours(changes: dict[str, Any]) -> None:
    assert judge(pull(**changes), policy=LAND) == "not_ours"


def test_the_name_of_the_repository_ignores_case() -> None:
    assert judge(pull(head_repo="Octo/Site"), policy=LAND) == "land"


PROTECTED = (
    *(".github/workflows/a.yml", ".GitHub/x", ".gitlab-ci.yml", ".gitlab/x", ".forgejo/x", ".gitea/x"),
    *("CODEOWNERS", "docs/CODEOWNERS", ".gitmodules", "src/.gitmodules", ".gitattributes", ".mergify.yml"),
    *(
        ".circleci/config.yml",
        ".buildkite/x",
        ".travis.yml",
        "Jenkinsfile",
        "Jenkinsfile.release",
        ".drone.yml",
    ),
    *(".woodpecker.yml", ".woodpecker/x", "azure-pipelines.yml", "bitbucket-pipelines.yml", ".appveyor.yml"),
    *(".cirrus.yml", "ci/deploy.gitlab-ci.yml", ".zuul.yaml", ".tekton/x", "cloudbuild.yaml", ".ci/run"),
    *("WORKFLOW.md", "workflow.md", "ops/WORKFLOW.md", "WORKFLOW.github.md", "ops/Docs.Workflow.md"),
    *(".symphony/x", "a/.symphony/x", "AGENTS.md", "src/agents.md", "a/b/CLAUDE.md", "CLAUDE.local.md"),
    *("AGENTS.override.md", "GEMINI.md", ".claude/settings.json", ".claude", "src/.claude/x"),
    *(".codex/config.toml", ".agents/skills/a/x.md", ".opencode/x", ".cursor/rules/x", ".cursorrules"),
    *(".mcp.json", "skills/deploy/SKILL.md", "opencode.json", ".clinerules", ".roomodes", ".aider.conf.yml"),
)
FREE = (
    *("x.yml", "src/a.py", "github/x", "docs/workflow-file.md", "docs/codeowners-guide.md", "src/claude.py"),
    *("src/agents/main.py", "ci/run.py", "docs/skills.md", "gitlab/x.rb", "src/workflow.py", "README.md"),
    *("src/codex_client.py", "docs/agents-guide.md", "mcp/server.py"),
)


@pytest.mark.parametrize("name", PROTECTED)
def test_a_change_of_what_judges_it_or_of_what_agents_obey_is_left_to_a_person(name: str) -> None:
    assert judge(pull(files=("src/a.py", name)), policy=LAND) == "protected_path"


@pytest.mark.parametrize("name", FREE)
def test_a_change_of_names_that_only_look_like_it_lands(name: str) -> None:
    assert judge(pull(files=(name,)), policy=LAND) == "land"


@pytest.mark.parametrize("name", ["daemon.md", "ops/Daemon.md", "prompts/a/x.md"])
def test_what_this_daemon_obeys_is_protected_by_its_name_or_path(name: str) -> None:
    policy = structs.replace(LAND, protected_names=frozenset({"daemon.md"}), protected_paths=("prompts/a",))
    assert is_protected(name, policy)
    assert not is_protected(f"src/{name}.txt", policy)


# --- which verdict ---------------------------------------------------------------------------------------


def test_a_good_one_is_settled_and_landed_only_if_that_is_on() -> None:
    assert judge(pull()) == "settled"
    assert judge_pull(pull(), ledger(), LAND, NOW) == MergeHead(HEAD)


def test_nothing_is_decided_while_an_agent_works() -> None:
    assert judge(pull(checks=(FAILED,)), working=True) == "working"


def test_the_forge_may_show_a_push_late_and_a_foreign_commit_is_told_to_a_person() -> None:
    assert judge(pull(), pushed_head=OLD, pushed_ms=NOW - MINUTE) == "push_not_seen"
    assert judge(pull(), pushed_head=OLD, pushed_ms=NOW - LAND.grace_ms) == "push_not_seen"
    assert judge(pull(), pushed_head=OLD, pushed_ms=NOW - LAND.grace_ms - 1) == "foreign_head"
    assert judge(pull(), pushed_head=OLD) == "foreign_head"


def test_unknown_is_never_good() -> None:
    assert judge(pull(conflicts=None)) == "mergeability_unknown"
    assert judge(pull(complete=False)) == "incomplete"
    assert judge(pull(complete=False), policy=LAND) == "incomplete"


def test_unknown_conflicts_hide_no_other_wait() -> None:
    assert judge(pull(conflicts=None, draft=True, checks=(PENDING,))) == "checks_pending"
    assert judge(pull(conflicts=None, draft=True)) == "mergeability_unknown"


def test_a_repository_without_checks_is_settled_but_never_landed() -> None:
    assert judge(pull(checks=())) == "settled"
    assert judge(pull(checks=()), policy=LAND) == "no_required_check"
    assert judge(pull(checks=(check(required=False),)), policy=LAND) == "no_required_check"
    named = structs.replace(LAND, required_checks=("test",))
    assert judge(pull(checks=(check(required=False),)), policy=named) == "land"


def test_all_checks_decide_if_none_is_required() -> None:
    assert judge(pull(checks=(check("lint", "failed", required=False),))) == "feedback ci"
    only = structs.replace(POLICY, required_checks=("test",))
    assert judged_checks(pull(checks=(check("lint", required=False),)), only) == ()


@pytest.mark.parametrize(
    ("kind", "changes", "wait"),
    [
        ("conflict", {"conflicts": True}, "conflicts"),
        ("ci", {"checks": (FAILED,)}, "checks_failed"),
        ("review", {"comments": (comment(),)}, "comments"),
    ],
)
def test_a_kind_that_is_off_is_left_to_people(kind: str, changes: dict[str, Any], wait: str) -> None:
    policy = structs.replace(LAND, feedback=frozenset(FeedbackKind) - {FeedbackKind(kind)})
    assert judge(pull(**changes), policy=policy) == wait


@pytest.mark.parametrize(
    ("kind", "limit", "changes"),
    [
        ("conflict", 2, {"conflicts": True}),
        ("ci", 3, {"checks": (FAILED,)}),
        ("review", 3, {"comments": (comment(),)}),
    ],
)
def test_turns_are_bounded_and_a_person_is_told_what_was_tried(
    kind: str, limit: int, changes: dict[str, Any]
) -> None:
    before = tuple(told(kind, f"{head}", head=head * 40) for head in "cdefghi"[:limit])
    known: dict[str, Any] = {"told": before, "turns": {FeedbackKind(kind): limit - 1}}
    assert judge(pull(**changes), **known) == f"feedback {kind}"
    outcome = judge_pull(pull(**changes), ledger(told=before, turns={FeedbackKind(kind): limit}), POLICY, NOW)
    assert isinstance(outcome, NeedsYou)
    assert outcome.code is NeedsYouCode.TURNS_USED
    assert all(each.head[:8] in outcome.message for each in before)


def test_the_turns_of_one_kind_do_not_bound_another() -> None:
    known: dict[str, Any] = {"turns": {FeedbackKind.CI: 3}}
    assert judge(pull(checks=(FAILED,), comments=(comment(),)), **known) == "feedback review"
    assert judge(pull(checks=(FAILED,)), **known) == "turns_used"


def test_a_conflict_is_told_once_for_each_head_and_base() -> None:
    seen = pull(conflicts=True)
    assert judge(seen, told=(told("conflict", "main"),)) == "no_change"
    assert judge(seen, told=(told("conflict", "main", head=OLD),)) == "feedback conflict"
    assert judge(replace(seen, base_branch="next"), told=(told("conflict", "main"),)) == "feedback conflict"


def test_a_check_is_told_once_for_each_head_and_run() -> None:
    seen = pull(checks=(FAILED, check("lint", "failed")))
    assert judge(seen, told=(told("ci", "id-test"),)) == "feedback ci"
    assert judge(seen, told=(told("ci", "id-lint", "id-test", head=OLD),)) == "feedback ci"
    assert judge(pull(checks=(FAILED,)), told=(told("ci", "id-lint", "id-test"),)) == "no_change"


def test_a_comment_is_told_once_whatever_the_head() -> None:
    known: dict[str, Any] = {"told": (told("review", "c1", head=OLD),)}
    assert judge(pull(comments=(comment(),)), **known) == "settled"
    assert judge(pull(threads=(thread(),)), **known) == "threads_open"
    assert judge(pull(threads=(thread(comment(), comment(id="c2")),)), **known) == "feedback review"


def test_a_comment_is_left_alone_for_a_minute_by_our_clock() -> None:
    recent = pull(comments=(comment(at=at(NOW - 10_000)),))
    ahead = pull(comments=(comment(at=at(NOW + DAY)),))
    assert judge(recent, changed_ms=NOW - 10_000) == "comments_recent"
    assert judge(ahead, changed_ms=NOW - 10_000) == "comments_recent"
    assert judge(ahead, changed_ms=NOW - MINUTE) == "feedback review"


def test_a_review_without_a_date_counts_from_when_it_was_seen() -> None:
    undated = pull(reviews=(review("commented", body="Hm", at=None),))
    assert judge(undated, changed_ms=NOW) == "comments_recent"
    assert judge(undated) == "feedback review"
    naive = review("commented", body="Hm", at=at(NOW).replace(tzinfo=None))
    assert judge(pull(reviews=(naive,))) == "feedback review"


def test_an_approval_takes_back_what_the_same_person_requested() -> None:
    earlier = replace(ASKS, at=at(NOW - HOUR))
    assert judge(pull(reviews=(earlier, review()))) == "settled"
    assert (
        judge(pull(reviews=(earlier, review(author=structs.replace(ANN, login="bob"))))) == "feedback review"
    )
    assert judge(pull(reviews=(earlier, review("commented")))) == "feedback review"
    assert judge(pull(reviews=(review(body="Nice"), review("approved", body="and rename it")))) == "settled"


def test_nothing_for_two_weeks_is_told_to_a_person() -> None:
    late = NOW + 15 * DAY
    assert judge(pull(), now=late) == "quiet"
    assert judge(pull(threads=(thread(),)), now=late, told=(told("review", "c1"),)) == "quiet"
    assert judge(pull(), policy=LAND, now=late) == "land"


# --- landing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wait"),
    [
        ({"draft": True}, "draft"),
        ({"threads": (thread(comment(author=STRANGER)),)}, "threads_open"),
        ({"reviews": ()}, "approval_missing"),
        ({"reviews": (review(sha=OLD),)}, "approval_missing"),
        ({"reviews": (review(sha=None),)}, "approval_missing"),
        ({"reviews": (review(sha=None),), "rules_met": True}, "approval_missing"),
        ({"reviews": (review(sha=OLD), review(sha=HEAD, id="2", at=at(NOW - MINUTE)))}, "land"),
        ({"base_branch": "release"}, "other_base"),
        ({"reviews": (review(author=BOT),), "rules_met": True}, "approval_missing"),
        ({"reviews": (review(author=STRANGER),)}, "approval_missing"),
        ({"reviews": (review(author=LISTED),)}, "approval_missing"),
        ({"reviews": (review(author=ME),)}, "approval_missing"),
        ({"rules_met": False}, "approval_missing"),
        ({"files": ()}, "files_unknown"),
        ({"changed_lines": None}, "files_unknown"),
    ],
)
def test_what_is_not_landed(changes: dict[str, Any], wait: str) -> None:
    assert judge(pull(**changes), policy=LAND) == wait


def test_the_limits_of_landing() -> None:
    labelled = structs.replace(LAND, land_labels=frozenset({"ship"}))
    assert judge(pull(), policy=labelled) == "label_missing"
    assert judge(pull(labels=("ship",)), policy=labelled) == "land"
    for reviews in ((), (review(sha=OLD),), (review(author=ME),), (review(author=BOT),)):
        assert judge(pull(labels=("ship",), reviews=reviews), policy=labelled) == "approval_missing"
    assert judge(pull(), policy=structs.replace(LAND, base=None)) == "other_base"
    assert judge(pull(base_branch="release"), policy=structs.replace(LAND, base="release")) == "land"
    assert judge(pull(changed_lines=11), policy=structs.replace(LAND, land_max_lines=10)) == "too_large"
    assert judge(pull(), policy=structs.replace(LAND, land_max_lines=10)) == "land"
    docs = structs.replace(LAND, land_paths=("docs/", "README.md"))
    assert judge(pull(files=("docs/a.md", "README.md")), policy=docs) == "land"
    assert judge(pull(files=("docs/a.md", "README.md.py")), policy=docs) == "path_not_allowed"


def test_the_forge_gets_time_to_merge_and_what_a_person_armed_is_left_alone() -> None:
    assert judge(pull(), policy=LAND, landings=(HEAD,), landed_ms=NOW - MINUTE) == "landing"
    assert judge(pull(queued=True), policy=LAND, landings=(HEAD,)) == "landing"
    assert judge(pull(armed=True), policy=LAND) == "landing"


def test_where_the_forge_does_not_tell_what_it_will_merge_the_ledger_does() -> None:
    seen, bad = pull(armed=None), Wait(WaitCode.THREADS_OPEN, "1 thread")
    assert judge(seen, policy=LAND) == "land"
    assert judge(seen, policy=LAND, landings=(HEAD,), landed_ms=NOW - HOUR) == "landing"
    assert judge(seen, policy=LAND, landings=(HEAD,)) == "land", "it was taken back"
    assert must_disarm(seen, ledger(landed_ms=NOW - HOUR), bad)
    assert not must_disarm(seen, ledger(landings=(HEAD,)), bad)


def test_a_rule_of_the_forge_that_is_never_met_is_told_to_a_person_and_a_queue_has_time() -> None:
    asked: dict[str, Any] = {"landings": (HEAD,), "landed_ms": NOW - 3 * HOUR}
    for armed in (True, None):
        assert judge(pull(armed=armed), policy=LAND, **asked) == "landing_failed"
    assert judge(pull(armed=True, queued=True), policy=LAND, **asked) == "landing"
    stuck = judge_pull(pull(armed=True), ledger(**asked), LAND, NOW)
    assert not must_disarm(pull(armed=True), ledger(**asked), stuck)


def test_what_is_no_longer_good_is_disarmed_if_we_armed_it() -> None:
    bad = Wait(WaitCode.THREADS_OPEN, "1 thread")
    ours = ledger(landings=(OLD,), landed_ms=NOW - HOUR)
    assert must_disarm(pull(queued=True), ours, bad)
    assert not must_disarm(pull(), ours, bad)
    assert not must_disarm(pull(armed=True), ledger(), bad)
    assert not must_disarm(pull(armed=True), ours, MergeHead(HEAD))
    assert not must_disarm(pull(armed=True), ours, Wait(WaitCode.LANDING, "soon"))


# --- the ledger ------------------------------------------------------------------------------------------


def test_a_new_head_begins_to_wait_anew() -> None:
    later = ledger_after_snapshot(ledger(head=OLD), pull(), POLICY, NOW)
    assert (later.head, later.head_ms, later.changed_ms, later.has_checks) == (HEAD, NOW, NOW, True)
    assert ledger_after_snapshot(ledger(), pull(checks=()), POLICY, NOW).head_ms == NOW - 10 * MINUTE


@pytest.mark.parametrize(
    ("checks", "left"),
    [
        ((check(),), 0),
        ((check(), check("lint", "pending")), 3),
        ((check("lint"),), 3),  # the one that failed has not started on this head
        ((check("lint"), check("test"), check("test", "failed")), 3),  # of another workflow
        ((), 3),
    ],
)
def test_green_checks_on_another_head_count_turns_from_zero(checks: tuple[Check, ...], left: int) -> None:
    turns = {FeedbackKind.CI: 3, FeedbackKind.REVIEW: 1}
    known = ledger(told=(told("ci", "id-test", head=OLD, names=("test",)),), turns=turns)
    after = ledger_after_snapshot(known, pull(checks=checks), POLICY, NOW)
    assert after.turns == {FeedbackKind.CI: left, FeedbackKind.REVIEW: 1}
    missed = pull(checks=checks, missing_checks=("deploy",))
    assert ledger_after_snapshot(known, missed, POLICY, NOW).turns == turns
    later = replace(known, told=(*known.told, told("ci", "id-lint", head=OLD, names=("lint",))))
    both = pull(checks=(*checks, check("lint")))
    assert ledger_after_snapshot(later, both, POLICY, NOW).turns[FeedbackKind.CI] == left
    assert ledger_after_snapshot(later, pull(checks=checks), POLICY, NOW).turns[FeedbackKind.CI] == 3
    same = replace(known, told=(told("ci", "id-test", names=("test",)),))
    assert ledger_after_snapshot(same, pull(checks=checks), POLICY, NOW).turns == turns


def test_feedback_is_recorded_before_it_is_given() -> None:
    seen = pull(checks=(FAILED,), comments=(comment(),), conflicts=True)
    outcome = judge_pull(seen, ledger(), POLICY, NOW)
    assert isinstance(outcome, FeedbackTurn)
    after = ledger_after_verdict(ledger(needs_you=NeedsYouCode.QUIET), outcome, NOW)
    assert [(each.kind, each.ids, each.names) for each in after.told] == [
        (FeedbackKind.CONFLICT, ("main",), ()),
        (FeedbackKind.CI, ("id-test",), ("test",)),
        (FeedbackKind.REVIEW, ("c1",), ()),
    ]
    assert after.turns == dict.fromkeys(FeedbackKind, 1)
    assert after.needs_you is None
    assert outcome.signatures == tuple(each.signature for each in after.told)


def test_what_other_verdicts_record() -> None:
    asked = ledger(needs_you=NeedsYouCode.QUIET)
    assert ledger_after_verdict(asked, MergeHead(HEAD), NOW).landings == (HEAD,)
    assert ledger_after_verdict(ledger(), NeedsYou(NeedsYouCode.QUIET, "quiet"), NOW) == asked
    assert ledger_after_verdict(asked, ReadyForPerson(), NOW) == ledger()
    assert ledger_after_verdict(asked, PullRequestEnded(merged=True), NOW) == ledger()
    assert ledger_after_verdict(asked, Wait(WaitCode.CHECKS_PENDING, "running"), NOW) == asked


def test_work_that_a_person_wants_counts_turns_from_zero() -> None:
    """However short it was: it may have ended before anybody looked."""
    asked = ledger(needs_you=NeedsYouCode.TURNS_USED, turns={FeedbackKind.CI: 3}, restarts=1)
    once = IssueResult(issue=make_issue(), restarts=1)
    again = replace(once, restarts=2)
    after = ledger_after_claim(asked, working=False, result=again)
    assert (after.turns, after.needs_you, after.working) == ({}, None, False)
    assert ledger_after_claim(after, working=False, result=again) == after
    for result in (once, None):
        assert ledger_after_claim(asked, working=True, result=result) == replace(asked, working=True)


def test_a_push_lifts_the_wait_for_a_person() -> None:
    asked = ledger(needs_you=NeedsYouCode.TURNS_USED, turns={FeedbackKind.CI: 3})
    assert ledger_after_push(asked, OLD, NOW).pushed_head == OLD
    assert ledger_after_push(asked, OLD, NOW).needs_you is None


def test_long_lists_of_hostile_names_become_short_lines() -> None:
    many = tuple(check(f"{number}\x1b[31m\nfake line " + "x" * 500, "pending") for number in range(50))
    outcome = judge_pull(pull(checks=many), ledger(), POLICY, NOW)
    assert isinstance(outcome, Wait)
    assert "\n" not in outcome.message
    assert "\x1b" not in outcome.message
    assert "45 more" in outcome.message


def test_many_comments_are_told_in_several_turns() -> None:
    many = tuple(comment(id=str(number)) for number in range(MAX_REMARKS + 5))
    first = judge_pull(pull(comments=many), ledger(), POLICY, NOW)
    assert isinstance(first, FeedbackTurn)
    assert len(first.remarks) == MAX_REMARKS
    later = replace(ledger_after_verdict(ledger(), first, NOW), working=False)
    second = judge_pull(pull(comments=many), later, POLICY, NOW)
    assert isinstance(second, FeedbackTurn)
    assert len(second.remarks) == 5


def test_threads_that_were_told_may_be_answered() -> None:
    outcome = judge_pull(pull(threads=(thread(),), comments=(comment(id="c2"),)), ledger(), POLICY, NOW)
    assert ledger_after_verdict(ledger(threads=("t0",)), outcome, NOW).threads == ("t0", "t1")


def test_what_was_offered_waits_until_it_is_taken_or_the_branch_moves_on() -> None:
    before = ledger(told=(told("ci", "id-test", head=OLD),), turns={FeedbackKind.CI: 1})
    seen = pull(checks=(FAILED,), comments=(comment(),))
    outcome = judge_pull(seen, before, POLICY, NOW)
    assert isinstance(outcome, FeedbackTurn)
    offer = outcome.offer("It failed.")
    assert (offer.head, offer.text) == (HEAD, "It failed.")
    offered = replace(ledger_after_verdict(before, outcome, NOW), offered=offer)
    assert code(judge_pull(seen, offered, POLICY, NOW)) == "working"
    assert ledger_after_snapshot(offered, seen, POLICY, NOW).offered == offer

    result = IssueResult(issue=make_issue(), feedback="another")
    assert ledger_after_claim(offered, working=False, result=result).offered == offer
    over = ledger_after_claim(offered, working=False, result=replace(result, status=ResultStatus.ENDED))
    assert (over.offered, over.told) == (None, before.told)
    taken = ledger_after_claim(offered, working=True, result=replace(result, feedback=offer.key))
    assert (taken.offered, taken.working) == (None, True)

    moved = ledger_after_snapshot(offered, pull(head_sha="c" * 40), POLICY, NOW)
    assert moved.told == before.told
    assert moved.turns == {FeedbackKind.CI: 1, FeedbackKind.REVIEW: 0}
    assert moved.offered is None


# --- properties ------------------------------------------------------------------------------------------

_AUTHORS = st.builds(
    Author,
    login=st.sampled_from(["ann", "bob", "review-bot", "", "stranger"]),
    is_bot=st.booleans(),
    can_write=st.booleans(),
    is_me=st.booleans(),
)
_TIMES = st.one_of(
    st.integers(-HOUR, HOUR).map(lambda ms: at(NOW + ms)),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
)
_IDS = st.sampled_from(["1", "2", "3"])
_SHAS = st.sampled_from([HEAD, OLD])
_BODIES = st.sampled_from(["", "Fix it", f"{COMMENT_MARKER} x", "\x1b[1m"])
_COMMENTS = st.builds(PullComment, id=_IDS, author=_AUTHORS, body=_BODIES, at=_TIMES)
_CHECKS = st.builds(
    Check,
    id=_IDS,
    name=st.sampled_from(["test", "lint"]),
    state=st.sampled_from(CheckState),
    sha=_SHAS,
    required=st.booleans(),
)
_REVIEWS = st.builds(
    PullRequestReview,
    id=_IDS,
    author=_AUTHORS,
    state=st.sampled_from(ReviewState),
    sha=st.one_of(st.none(), _SHAS),
    body=_BODIES,
    at=st.one_of(st.none(), _TIMES),
)
_THREADS = st.builds(
    ReviewThread, id=_IDS, resolved=st.booleans(), comments=st.lists(_COMMENTS, max_size=2).map(tuple)
)


def _few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(PullState),
        "draft": st.booleans(),
        "head_repo": st.sampled_from(["octo/site", "other/site", None]),
        "head_sha": _SHAS,
        "base_branch": st.sampled_from(["main", "release"]),
        "conflicts": st.sampled_from([True, False, None]),
        "rules_met": st.sampled_from([True, False, None]),
        "checks": _few(_CHECKS),
        "reviews": _few(_REVIEWS),
        "threads": _few(_THREADS),
        "comments": _few(_COMMENTS),
        "labels": st.sampled_from([(), ("ship",)]),
        "files": st.sampled_from([(), ("src/a.py",), ("WORKFLOW.md",)]),
        "changed_lines": st.sampled_from([None, 1, 1_000]),
        "armed": st.sampled_from([True, False, None]),
        "missing_checks": st.sampled_from([(), ("deploy",)]),
        "queued": st.booleans(),
        "complete": st.booleans(),
    },
)
_POLICIES = st.builds(
    ForgePolicy,
    repo=st.just("octo/site"),
    feedback=st.frozensets(st.sampled_from(FeedbackKind)),
    required_checks=st.sampled_from([(), ("test",)]),
    reviewers=st.sampled_from([frozenset(), frozenset({"review-bot"})]),
    land=st.booleans(),
    base=st.sampled_from([None, "main"]),
    land_labels=st.sampled_from([frozenset(), frozenset({"ship"})]),
    land_max_lines=st.sampled_from([None, 100]),
)
_LEDGERS = st.builds(
    ledger,
    pushed_head=_SHAS,
    changed_ms=st.integers(NOW - 20 * DAY, NOW),
    pushed_ms=st.integers(NOW - DAY, NOW),
    has_checks=st.booleans(),
    turns=st.dictionaries(st.sampled_from(FeedbackKind), st.integers(0, 4)),
    needs_you=st.one_of(st.none(), st.sampled_from(NeedsYouCode)),
    landings=st.sampled_from([(), (HEAD,), (OLD,), (HEAD,) * 3]),
    landed_ms=st.sampled_from([0, NOW - HOUR, NOW - 3 * HOUR]),
    working=st.booleans(),
)


@given(_CHANGES, _LEDGERS, _POLICIES)
def test_nothing_is_landed_that_is_not_known_to_be_good(
    changes: dict[str, Any], known: PullLedger, policy: ForgePolicy
) -> None:
    seen = pull(**changes)
    outcome = judge_pull(seen, known, policy, NOW)
    must_disarm(seen, known, outcome)
    if not isinstance(outcome, MergeHead):
        return
    assert policy.land
    assert outcome.head == seen.head_sha == known.pushed_head
    assert seen.state is PullState.OPEN
    assert seen.complete
    assert seen.conflicts is False
    assert seen.rules_met is not False
    assert not seen.missing_checks
    assert all(each.resolved for each in seen.threads)
    assert "WORKFLOW.md" not in seen.files
    assert seen.base_branch == policy.base
    assert any(each.state is ReviewState.APPROVED and each.sha == seen.head_sha for each in seen.reviews)
    judged = judged_checks(seen, policy)
    assert judged
    assert all(each.state is CheckState.PASSED and each.sha == seen.head_sha for each in judged)


@given(st.lists(st.tuples(_CHANGES, st.integers(0, 3 * HOUR)), max_size=25), _POLICIES)
def test_nothing_is_told_twice_and_no_turn_goes_beyond_the_bounds(
    snapshots: list[tuple[dict[str, Any], int]], policy: ForgePolicy
) -> None:
    """Every turn ends with a push of what the next snapshot has."""
    known, now, signatures = ledger(), NOW, list[str]()
    for changes, later_ms in snapshots:
        now += later_ms
        seen = pull(**changes)
        known = ledger_after_push(replace(known, working=False), seen.head_sha, now - HOUR)
        known = ledger_after_snapshot(known, seen, policy, now)
        outcome = judge_pull(seen, known, policy, now + 5 * MINUTE)
        if isinstance(outcome, FeedbackTurn):
            assert set(outcome.kinds) <= policy.feedback
            for kind in outcome.kinds:
                assert known.turns.get(kind, 0) < policy.max_turns[kind]
            signatures.extend(outcome.signatures)
        known = ledger_after_verdict(known, outcome, now)
        assert len(set(signatures)) == len(signatures)
        assert known.turns.get(FeedbackKind.REVIEW, 0) <= 3
        assert known.turns.get(FeedbackKind.CONFLICT, 0) <= 2
    assert _count(signatures, "review") <= 3
    assert _count(signatures, "conflict") <= 2


# --- blocks ----------------------------------------------------------------------------------------------


def _result(**changes: Any) -> IssueResult:
    return IssueResult(issue=make_issue(), **changes)


def _block(made: Verdict, *, result: IssueResult | None = None, **known: Any) -> PullRequestJudged | None:
    return block_of(made, ledger(**known), result or _result())


@pytest.mark.parametrize(
    ("made", "category", "key"),
    [
        (PullRequestEnded(merged=False), Category.PULL_REQUEST_CLOSED, "closed 7"),
        (PullRequestEnded(merged=False, gone=True), Category.PULL_REQUEST_CLOSED, "closed 7"),
        (
            NeedsYou(NeedsYouCode.TURNS_USED, "three turns were in vain"),
            Category.PULL_REQUEST_NEEDS_YOU,
            f"turns_used 7 {HEAD}",
        ),
    ],
)
def test_what_needs_a_person_is_told_once_and_again_once_it_is_over(
    made: Verdict, category: Category, key: str
) -> None:
    found = _block(made)
    assert found is not None
    assert found.block is not None
    assert (found.block.key, found.block.failure.category) == (key, category)
    assert "symphony unblock SYM-1" in (found.block.failure.hint or "")
    assert _block(made, result=_result(pull_block=found.block)) is None
    assert _block(made, result=_result(lifted=key)) is None
    over = PullRequestJudged(issue_id="1")
    for good in (
        ReadyForPerson(),
        MergeHead(HEAD),
        PullRequestEnded(merged=True),
        Wait(WaitCode.CHECKS_PENDING, "running"),
    ):
        assert _block(good) is None
        assert _block(good, result=_result(pull_block=found.block)) == over
        assert _block(good, result=_result(lifted=key)) == over


def test_a_check_that_passed_hides_no_failed_one_of_the_same_name() -> None:
    known = ledger(turns={FeedbackKind.CI: 2}, told=(told("ci", "id-test", head=OLD, names=("test",)),))
    twins = (check(), check(id="id-other", state="failed"))
    assert ledger_after_snapshot(known, pull(checks=twins), POLICY, NOW).turns == known.turns
    assert ledger_after_snapshot(known, pull(), POLICY, NOW).turns == {FeedbackKind.CI: 0}


def test_a_mere_wait_lifts_nothing_while_a_person_is_needed() -> None:
    made = Wait(WaitCode.CHECKS_PENDING, "a bot started a check anew")
    blocked = _result(pull_block=PullBlock(key="x", failure=make_failure()))
    assert _block(made, result=blocked, needs_you=NeedsYouCode.TURNS_USED) is None


def test_after_a_person_lifted_it_all_counts_from_zero_once() -> None:
    known = ledger(
        turns={FeedbackKind.CI: 3},
        told=(told("ci", "id-test"), told("review", "c1"), told("ci", "id-test", head=OLD)),
        needs_you=NeedsYouCode.NO_CHANGE,
        landings=(HEAD,),
    )
    red = pull(checks=(check(state="failed"),))
    assert code(judge_pull(red, known, POLICY, NOW)) == "no_change"
    lifted = ledger_after_lift(known, "no_change 7", NOW)
    assert (dict(lifted.turns), lifted.needs_you, lifted.landings, lifted.changed_ms) == ({}, None, (), NOW)
    assert [(each.kind, each.head) for each in lifted.told] == [("review", HEAD), ("ci", OLD)]
    assert code(judge_pull(red, lifted, POLICY, NOW)) == "feedback ci"
    again = replace(lifted, turns={FeedbackKind.CI: 1})
    assert ledger_after_lift(again, "no_change 7", NOW).turns == again.turns
    assert ledger_after_lift(again, None, NOW) == replace(again, lifted=None)


def _count(signatures: Iterable[str], kind: str) -> int:
    return sum(each.startswith(f"{kind} ") for each in signatures)
