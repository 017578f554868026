"""What the checks of a commit say: verdict, one line, evidence for the agent; nothing secret in it."""

import pytest

from symphony.domain import (
    MAX_REMARK_CHARS,
    MAX_REVIEWER_REMARKS,
    PATTERNS_ONLY,
    CheckRun,
    KeptFile,
    LineComment,
    ReviewerRemark,
    ReviewerVerdict,
    Verification,
    VerificationStatus,
)

OK = CheckRun(name="lint", exit_code=0)
BAD = CheckRun(name="tests", exit_code=2, output_tail="x\n```\n1 failed\n")
OLD = CheckRun(name="docs", exit_code=1, output_tail="old", fails_on_base=True)
LATE = CheckRun(name="slow", problem="did not end within 5 ms")
SKIPPED = CheckRun(name="web", skipped=True)
KILLED = CheckRun(name="crash", exit_code=-9)


@pytest.mark.parametrize(
    ("checks", "problem", "verdict"),
    [
        ((), None, VerificationStatus.PASSED),
        ((OK, SKIPPED), None, VerificationStatus.PASSED),
        ((OK, BAD), None, VerificationStatus.FAILED),
        ((OK, LATE), None, VerificationStatus.FAILED),
        ((OLD,), None, VerificationStatus.BASE_FAILED),
        ((OLD, BAD), None, VerificationStatus.FAILED),
        ((OK,), "there is work that no commit holds", VerificationStatus.FAILED),
        ((OLD,), "there is work that no commit holds", VerificationStatus.FAILED),
    ],
)
def test_nothing_but_a_complete_pass_is_a_pass(
    checks: tuple[CheckRun, ...], problem: str | None, verdict: VerificationStatus
) -> None:
    made = Verification(head="abc", checks=checks, problem=problem)
    assert made.status is verdict
    assert made.passed is (verdict is VerificationStatus.PASSED)


def test_one_line_names_what_failed_and_how_or_what_passed() -> None:
    failed = Verification(head="abc", checks=(OK, BAD, OLD, LATE, KILLED), problem="P")
    assert failed.line == (
        "P; tests failed with exit code 2; docs failed with exit code 1 (on the base too); "
        "slow did not end within 5 ms; crash was ended by signal 9"
    )
    assert Verification(head="abc", checks=(OK, SKIPPED)).line == "lint passed"
    assert Verification(head="abc").line == "nothing was to be checked"
    flaky = Verification(head="abc", checks=(OK,), passed_after_failure=True)
    assert flaky.line == "lint passed, after it had failed on the same commit"


def test_evidence_leaves_out_what_the_base_is_at_fault_for_and_fences_output() -> None:
    told = Verification(head="0123456789abcdef", checks=(OK, BAD, OLD, LATE), problem="P").evidence()
    assert "0123456789ab" in told
    assert "`tests` failed with exit code 2" in told
    assert "````text" in told, "output cannot end its fence"
    assert "`docs`" not in told
    assert "`lint`" not in told
    assert "`slow` did not end within 5 ms." in told


def test_what_passed_is_kept_without_its_output_and_much_evidence_is_shared_out() -> None:
    loud = CheckRun(name="tests", exit_code=1, output_tail="x" * 8_000)
    passed = CheckRun(name="lint", exit_code=0, output_tail="fine")
    made = Verification(head="abc", checks=(passed, *(loud for _ in range(10)))).kept()
    assert [len(check.output_tail) for check in made.checks] == [0, *(8_000 for _ in range(10))]
    assert len(made.evidence()) < 30_000


def test_secrets_are_masked_everywhere() -> None:
    secret = "ghp_" + "a1B2" * 9
    check = CheckRun(name="tests", output_tail=secret, problem=secret)
    made = Verification(
        head="abc",
        checks=(check, OK),
        problem=secret,
        protected_changes=(secret,),
        weakened=(secret,),
    )
    masked = made.masked(PATTERNS_ONLY)
    assert secret not in repr(masked)
    assert masked.checks[1] == OK
    assert Verification(head="abc").masked(PATTERNS_ONLY) == Verification(head="abc")
    assert SKIPPED.ended.startswith("was skipped")


REMARK = ReviewerRemark(file="src/a.py", line=7, text="```\nthe sum is wrong")
REFUSED = ReviewerVerdict(reviewer="critic", approves=False, remarks=(REMARK,))
APPROVED = ReviewerVerdict(reviewer="critic", approves=True)


def test_a_reviewer_that_asks_for_changes_is_a_failure_and_an_approval_changes_nothing() -> None:
    assert Verification(head="abc", checks=(OK,), reviewer=REFUSED).status is VerificationStatus.FAILED
    assert Verification(head="abc", checks=(OK,), reviewer=APPROVED).passed
    assert not Verification(head="abc", checks=(BAD,), reviewer=APPROVED).passed
    assert Verification(head="abc", checks=(OLD,), reviewer=APPROVED).status is VerificationStatus.BASE_FAILED
    assert Verification(head="abc", checks=(OLD,), reviewer=REFUSED).status is VerificationStatus.FAILED


def test_the_verdict_stands_in_the_line_and_the_remarks_in_the_evidence() -> None:
    refused = Verification(head="abc", checks=(OK,), reviewer=REFUSED)
    assert refused.line == "reviewer critic requests changes (1 remark)"
    assert "````text\nsrc/a.py:7: ```" in refused.evidence()
    assert Verification(head="abc", checks=(OK,), reviewer=APPROVED).line == (
        "lint passed; reviewer critic approves"
    )
    assert Verification(head="abc", reviewer=APPROVED).line == "reviewer critic approves"
    assert "reviewer" not in Verification(head="abc", checks=(OK,), reviewer=APPROVED).evidence()


def test_many_long_remarks_are_cut_in_the_evidence() -> None:
    long = ReviewerRemark(file="a", text="x" * MAX_REMARK_CHARS)
    verdict = ReviewerVerdict(reviewer="critic", approves=False, remarks=(long,) * MAX_REVIEWER_REMARKS)
    assert len(Verification(head="abc", reviewer=verdict).evidence()) < 30_000


def test_secrets_in_remarks_are_masked() -> None:
    secret = "ghp_" + "a1B2" * 9
    verdict = ReviewerVerdict(
        reviewer="critic", approves=False, remarks=(ReviewerRemark(file=secret, text=secret),)
    )
    assert secret not in repr(Verification(head="abc", reviewer=verdict).masked(PATTERNS_ONLY))


@pytest.mark.parametrize(
    ("check", "result"),
    [(OK, "passed"), (BAD, "failed"), (OLD, "base_failed"), (LATE, "not_done"), (SKIPPED, "skipped")],
)
def test_a_check_has_one_word_for_its_end(check: CheckRun, result: str) -> None:
    assert check.result == result


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("reports/junit.xml", "reports%2Fjunit.xml"),
        ("../a b", "%2E.%2Fa%20b"),
        ("\udcff", "%3F"),
    ],
)
def test_a_kept_file_has_a_name_that_leads_nowhere_else(name: str, file: str) -> None:
    assert KeptFile(name=name).file == file


def test_long_names_of_kept_files_are_told_apart() -> None:
    first, second = (KeptFile(name="a" * 1_000 + end).file for end in "xy")
    assert first != second
    assert len(first) == len(second) < 256


@pytest.mark.parametrize(("old", "place"), [(False, "a.py:7"), (True, "a.py:7 (before the change)")])
def test_a_line_comment_names_its_place(*, old: bool, place: str) -> None:
    assert LineComment(file="a.py", line=7, old=old, quote="x", text="?", head="c0ffee").place == place
