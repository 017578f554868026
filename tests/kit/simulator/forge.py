"""The forge of a world, and the watch of the daemon over it: checks and reviewers do as they like.

The watch is that of `symphony.daemon`, without requests: the ledger of each pull request is written before
anything is done about it, and the next daemon goes on with what is written.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from msgspec import structs

from kit.simulator.clock import Clock
from kit.simulator.daemon import Daemon
from kit.simulator.dice import Dice
from kit.simulator.judged import CLOSED_WAITS, FEEDBACK_ARRIVES, FEEDBACK_BOUNDS, FEEDBACK_ONCE, LANDED
from kit.simulator.memory import Memory
from kit.simulator.profiles import HOUR_MS, ForgeHabits
from kit.simulator.referee import InvariantBrokenError, Referee
from kit.simulator.rules import Invariant
from symphony.domain import (
    Author,
    Check,
    CheckState,
    DeliveredBranch,
    PullComment,
    PullRequest,
    PullRequestReview,
    PullState,
    ReviewState,
    ReviewThread,
)
from symphony.scheduler import (
    FeedbackGiven,
    FeedbackKind,
    FeedbackTurn,
    ForgePolicy,
    IssueResult,
    MergeHead,
    PullLedger,
    PullRequestEnded,
    ResultStatus,
    Verdict,
    block_of,
    is_worked_on,
    judge_pull,
    judged_checks,
    ledger_after_claim,
    ledger_after_lift,
    ledger_after_push,
    ledger_after_snapshot,
    ledger_after_verdict,
    must_disarm,
)

__all__ = ["Forge", "Watch"]

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_POLICY = ForgePolicy(repo="octo/site", reviewers=frozenset({"review-bot"}), land=True, base="main")
_ME = Author(login="symphony", is_me=True)
_PEOPLE = (
    Author(login="ann", can_write=True),
    Author(login="review-bot", is_bot=True),
    Author(login="mallory"),
)
_BOUNDS = {FeedbackKind.REVIEW: 3, FeedbackKind.CONFLICT: 2}
_MAX_EVENTS = 12
_ACT_MS = 1_000
_LAST_LOOKS = 3
_REOPENED = 0.3


Judge = Callable[[PullRequest, PullLedger, ForgePolicy, int], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Parts of the daemon's watch that can be put in the place of ours, to see who notices.

    `record` makes the ledger after a verdict; `gives` is whether feedback reaches the scheduler, and `blocks`
    whether it hears of what needs a person.
    """

    judge: Judge = judge_pull
    record: Callable[[PullLedger, Verdict, int], PullLedger] = ledger_after_verdict
    gives: bool = True
    blocks: bool = True


@dataclass(slots=True)
class _Pull:
    """A pull request as the forge has it. `green` counts how often all checks that count had passed."""

    pull: PullRequest
    green: int = 0
    events: int = 0
    told: set[str] = field(default_factory=set)
    turns: Counter[FeedbackKind] = field(default_factory=Counter)

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor merged."""
        return self.pull.state is PullState.OPEN


class Forge:
    """All pull requests of one world, and the watch of one daemon after the other.

    A rule is broken where something is told twice, too often or never, or landed that is not good.
    """

    def __init__(
        self,
        clock: Clock,
        dice: Dice,
        habits: ForgeHabits,
        daemon: Daemon,
        memory: Memory,
        referee: Referee,
        watch: Watch,
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._habits = habits
        self._daemon = daemon
        self._memory = memory
        self._referee = referee
        self._watch = watch
        self._pulls: dict[str, _Pull] = {}
        self._ids = count(1)
        self._versions: dict[str, PullLedger] = {}
        self._resting = self._over = False
        if habits.observe_ms:
            clock.after(habits.observe_ms, self._observe_all)
            clock.after(dice.around(habits.event_every_ms), self._event)

    def rest(self) -> None:
        """People leave everything alone from now on, and checks pass."""
        self._resting = True

    def check_end(self) -> None:
        """After a few looks nothing that was told waits for a free issue, and no closed work is free.

        Raises:
            InvariantBrokenError: it does.
        """
        wrong = self._wrong()
        for _ in range(_LAST_LOOKS):
            if wrong:
                self._clock.run(self._clock.now_ms + self._habits.observe_ms + _ACT_MS)
                wrong = [each for each in self._wrong() if each in wrong]
        if wrong:
            rule, message, issue_id = wrong[0]
            raise self._broken(rule, message, issue_id)
        self._over = True

    def _wrong(self) -> list[tuple[Invariant, str, str]]:
        """What free issues should not be free for."""
        found = []
        for issue_id, result in sorted(self._daemon.state.results.items()):
            ledger, held = self._ledger(issue_id), self._pulls.get(issue_id)
            if ledger is None or held is None or result.status is not ResultStatus.READY:
                continue
            if held.is_open and ledger.offered is not None and ledger.offered.key != result.feedback:
                found.append((FEEDBACK_ARRIVES, f"it waits: {ledger.offered.summary}", issue_id))
            if held.pull.state is PullState.CLOSED and result.lifted is None:
                found.append((CLOSED_WAITS, "its pull request is closed, and it is free", issue_id))
        return found

    def _broken(self, rule: Invariant, message: str, issue_id: str) -> InvariantBrokenError:
        return self._referee.broken(rule, message, self._clock.now_ms, issue_id)

    # --- what happens to pull requests -------------------------------------------------------------------

    def _now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self._clock.now_ms)

    def _open(self, issue_id: str, branch: str, head: str) -> _Pull:
        number = next(self._ids)
        pull = PullRequest(
            id=str(number),
            number=number,
            url="",
            title="",
            body="",
            state=PullState.OPEN,
            draft=False,
            author=_ME,
            head_branch=branch,
            head_repo=_POLICY.repo,
            head_sha=head,
            base_branch="main",
            files=("src/a.py",),
            changed_lines=1,
        )
        self._pulls[issue_id] = made = _Pull(pull)
        self._push(made, head)
        return made

    def _push(self, held: _Pull, head: str) -> None:
        """The branch has a new head: it may conflict, and checks appear when they like."""
        dice, habits = self._dice, self._habits
        conflicts = not self._resting and dice.chance(habits.conflicts)
        held.pull = replace(held.pull, head_sha=head, conflicts=conflicts, armed=False)
        for name in ("test", "lint"):
            late_ms = HOUR_MS if dice.chance(habits.late) else 0
            self._clock.after(dice.between(habits.checks_ms) + late_ms, self._check_begins, held, head, name)

    def _check_begins(self, held: _Pull, head: str, name: str) -> None:
        check = Check(
            id=str(next(self._ids)), name=name, state=CheckState.PENDING, sha=head, required=name == "test"
        )
        held.pull = replace(held.pull, checks=(*held.pull.checks, check))
        self._clock.after(self._dice.between(self._habits.checks_ms), self._check_ends, held, check)

    def _check_ends(self, held: _Pull, check: Check) -> None:
        failed = not self._resting and self._dice.chance(self._habits.red)
        done = structs.replace(check, state=CheckState.FAILED if failed else CheckState.PASSED)
        checks = tuple(done if each == check else each for each in held.pull.checks)
        held.pull = replace(held.pull, checks=checks)
        judged = judged_checks(held.pull, _POLICY)
        held.green += all(each.state is CheckState.PASSED for each in judged)

    def _event(self) -> None:
        """A person or bot does something to one of them."""
        if self._resting:
            return
        self._clock.after(self._dice.around(self._habits.event_every_ms), self._event)
        unmerged = [held for held in self._pulls.values() if held.pull.state is not PullState.MERGED]
        if unmerged:
            held = self._dice.pick(unmerged)
            held.events += 1
            if not held.is_open:
                reopened = self._dice.chance(_REOPENED)
                held.pull = replace(held.pull, state=PullState.OPEN if reopened else PullState.CLOSED)
            elif held.events <= _MAX_EVENTS:
                self._dice.pick(self._acts)(self, held)

    def _comment(self) -> PullComment:
        author = self._dice.pick(_PEOPLE)
        return PullComment(id=str(next(self._ids)), author=author, body="Rename it", at=self._now())

    def _says(self, held: _Pull) -> None:
        held.pull = replace(held.pull, comments=(*held.pull.comments, self._comment()))

    def _remarks(self, held: _Pull) -> None:
        thread = ReviewThread(
            id=str(next(self._ids)), resolved=False, comments=(self._comment(),), path="src/a.py"
        )
        held.pull = replace(held.pull, threads=(*held.pull.threads, thread))

    def _resolves(self, held: _Pull) -> None:
        held.pull = replace(
            held.pull, threads=tuple(replace(each, resolved=True) for each in held.pull.threads)
        )

    def _reviews(self, held: _Pull) -> None:
        review = PullRequestReview(
            id=str(next(self._ids)),
            author=self._dice.pick(_PEOPLE),
            state=self._dice.pick(tuple(ReviewState)),
            sha=held.pull.head_sha,
            body=self._dice.pick(("", "Hm")),
            at=self._now(),
        )
        held.pull = replace(held.pull, reviews=(*held.pull.reviews, review))

    def _reruns(self, held: _Pull) -> None:
        self._check_begins(held, held.pull.head_sha, "test")

    def _intrudes(self, held: _Pull) -> None:
        self._push(held, f"foreign-{next(self._ids)}")

    def _ends(self, held: _Pull) -> None:
        state = self._dice.pick((PullState.CLOSED, PullState.MERGED))
        held.pull = replace(held.pull, state=state)

    _acts = (
        *(_says, _says, _says, _remarks, _remarks, _remarks, _resolves, _resolves),
        *(_reviews, _reviews, _reviews, _reruns, _reruns, _intrudes, _ends),
    )

    # --- the daemon's watch ------------------------------------------------------------------------------

    def _observe_all(self) -> None:
        self._clock.after(self._habits.observe_ms, self._observe_all)
        if self._daemon.up and not self._over:
            for issue_id, result in sorted(self._daemon.state.results.items()):
                if self._daemon.up:
                    self._observe(issue_id, result)

    def _ledger(self, issue_id: str) -> PullLedger | None:
        version = self._memory.kept(f"pull {issue_id}")
        return None if version is None else self._versions[version]

    def _keep(self, issue_id: str, ledger: PullLedger) -> str:
        version = f"{issue_id} {next(self._ids)}"
        self._versions[version] = ledger
        self._memory.keep(f"pull {issue_id}", version)
        return version

    def _observe(self, issue_id: str, result: IssueResult) -> None:
        """One look at one pull request; what comes of it is written first."""
        delivered, now_ms = result.delivered, self._clock.now_ms
        may_change = result.status in {ResultStatus.OPEN, ResultStatus.READY}
        if delivered is None or not may_change or not (delivered.pushed or issue_id in self._pulls):
            return
        held, ledger = self._find(issue_id, result, delivered)
        before = ledger
        unpushed = not delivered.pushed and held.pull.head_sha in {ledger.pushed_head, delivered.head}
        working = is_worked_on(self._daemon.state, issue_id) or unpushed
        ledger = ledger_after_claim(ledger, working=working, result=result)
        ledger = ledger_after_lift(ledger, result.lifted, now_ms)
        if ledger.turns != before.turns:
            held.turns.clear()  # somebody wants it worked on
        held.told.difference_update(each.signature for each in before.told if each not in ledger.told)
        before = ledger
        seen = held.pull
        if self._dice.chance(self._habits.unknown) and not self._resting:
            seen = replace(seen, conflicts=None)
        ledger = ledger_after_snapshot(ledger, seen, _POLICY, now_ms)
        for withdrawn in before.told:
            if withdrawn not in ledger.told and withdrawn.signature in held.told:
                held.told.remove(withdrawn.signature)
                held.turns[withdrawn.kind] -= 1
        outcome = self._watch.judge(seen, ledger, _POLICY, now_ms)
        if must_disarm(seen, ledger, outcome):
            held.pull = replace(held.pull, armed=False)
        ledger = self._watch.record(ledger, outcome, now_ms)
        if isinstance(outcome, FeedbackTurn):
            self._judge_feedback(issue_id, held, outcome)
            ledger = replace(ledger, offered=outcome.offer("news"))
        version = self._keep(issue_id, ledger)
        self._clock.after(_ACT_MS, self._act, self._daemon.life, issue_id, version, outcome)

    def _find(
        self, issue_id: str, result: IssueResult, delivered: DeliveredBranch
    ) -> tuple[_Pull, PullLedger]:
        """The pull request of the branch, with what was pushed since; new work after its end gets another."""
        held, ledger, now_ms = self._pulls.get(issue_id), self._ledger(issue_id), self._clock.now_ms
        is_new = ledger is not None and delivered.pushed and delivered.head != ledger.pushed_head
        if held is None or (is_new and not held.is_open and result.status is ResultStatus.READY):
            held, ledger = self._open(issue_id, delivered.branch, delivered.head), None
        if ledger is None:
            ledger = PullLedger(
                number=held.pull.number,
                branch=delivered.branch,
                pushed_head=delivered.head,
                pushed_ms=now_ms,
            )
        elif is_new and held.is_open:
            self._push(held, delivered.head)
            ledger = ledger_after_push(ledger, delivered.head, now_ms)
        return held, ledger

    def _act(self, life: int, issue_id: str, version: str, outcome: Verdict) -> None:
        """Do what is written; what is not written yet is left to the next look."""
        is_written = self._memory.kept(f"pull {issue_id}") == version
        if life != self._daemon.life or not self._daemon.up or not is_written:
            return
        held, ledger = self._pulls[issue_id], self._versions[version]
        result = self._daemon.state.results.get(issue_id)
        judged = None if result is None else block_of(outcome, ledger, result)
        if judged is not None and self._watch.blocks:
            self._daemon.tell(judged)
        if isinstance(outcome, MergeHead):
            self._land(issue_id, held, outcome)
        if isinstance(outcome, FeedbackTurn):
            held.told.update(outcome.signatures)
            held.turns.update(outcome.kinds)
        if ledger.offered is not None and self._watch.gives and not isinstance(outcome, PullRequestEnded):
            offer = ledger.offered
            self._daemon.tell(
                FeedbackGiven(issue_id=issue_id, key=offer.key, summary=offer.summary, text=offer.text)
            )

    def _judge_feedback(self, issue_id: str, held: _Pull, feedback: FeedbackTurn) -> None:
        if twice := held.told.intersection(feedback.signatures):
            raise self._broken(FEEDBACK_ONCE, f"told again: {min(twice)}", issue_id)
        for kind in feedback.kinds:
            bound = _BOUNDS.get(kind, 3 * (1 + held.green))
            if held.turns[kind] >= bound:
                raise self._broken(FEEDBACK_BOUNDS, f"turn {held.turns[kind] + 1} about {kind}", issue_id)

    def _land(self, issue_id: str, held: _Pull, land: MergeHead) -> None:
        """The forge merges the head that it is asked to merge, if that is still the head."""
        pull = held.pull
        if pull.head_sha != land.head or pull.state is not PullState.OPEN:
            return
        judged = [each for each in pull.checks if each.sha == land.head and each.required]
        approved = any(
            review.state is ReviewState.APPROVED and review.author.can_write and review.sha == land.head
            for review in pull.reviews
        )
        if not judged or not approved or pull.conflicts:
            raise self._broken(LANDED, f"{land.head} was landed", issue_id)
        held.pull = replace(pull, state=PullState.MERGED)
