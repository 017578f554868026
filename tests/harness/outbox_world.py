"""A world in which trackers, forges, targets and the remote go away and come back, and the daemon is killed.

The outbox and the kinds of jobs are the real ones, but that of the forge: a stand-in looks for its marker
before it writes. Time is virtual.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, cast

import anyio
from msgspec import structs
from typing_extensions import override

from harness.binding import FakeWorkspaces, StoryCore, make_context
from harness.outbox import Outbox, make_state
from harness.scheduling import make_failure, make_issue
from symphony.config import ScheduleSettings
from symphony.daemon.comments import CommentDraft, CommentWriter, queue_comment
from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import ActionRequest
from symphony.daemon.jobs import Attempt, JobKind
from symphony.daemon.moves import Moves, queue_move
from symphony.daemon.new_issues import IssueCreations, WantedIssue, queue_issue
from symphony.daemon.notify.delivery import Deliveries, receiver_of
from symphony.daemon.notify.notifications import Notification, Subject
from symphony.daemon.notify.targets import Deliverer, DeliveryError
from symphony.daemon.pushes import Pushes, queue_push
from symphony.domain import DeliveredBranch, Failure, Issue, SymphonyError, WorkSize
from symphony.journal.jobs import Job
from symphony.journal.model import encode
from symphony.scheduler import (
    Event,
    IssueResult,
    MoveIssue,
    MoveReason,
    PushBranch,
    Pushed,
    State,
)
from symphony.trackers.base import Comment, IssueToCreate

__all__ = ["Arrival", "Outage", "World", "play"]

ISSUES: Final = 4
GRACE_S: Final = 60
STALL_S: Final = 60
"""A push that makes no headway for so long is ended; one that has just begun to hang takes as much longer."""

_ORDERS: Final = 40
WAYS: Final = ("down", "hangs", "loses answers", "asks to wait")
RECEIVERS: Final = ("tracker", "forge", "origin", "chat", "pager")


@dataclass(frozen=True, slots=True)
class Outage:
    """From when to when a receiver fails, in seconds, and in which way."""

    begin_s: float
    end_s: float
    way: str


SCHEDULE: Final = ScheduleSettings(name="s", cron="0 3 * * *", title="T")
"""Made here, outside of a loop, where the file of its time zone may be read."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The version of something that a receiver took, and when."""

    key: str
    version: int
    at_s: float


@dataclass
class World:
    """What the receivers have, what waits for them, and when they fail."""

    dice: Random
    outages: dict[str, list[Outage]] = field(default_factory=dict)
    queued: dict[str, tuple[int, float]] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    up_since_s: float = 0
    boards: dict[str, str] = field(default_factory=dict)
    by_person: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def outage(self, receiver: str) -> Outage | None:
        """The outage of a receiver now."""
        now = anyio.current_time()
        return next((one for one in self.outages[receiver] if one.begin_s <= now < one.end_s), None)

    async def ask(self, receiver: str) -> bool:
        """A request; raises if the receiver fails, and says whether its answer is lost."""
        await anyio.sleep(self.dice.choice((0.01, 0.2, 1.5)))
        outage = self.outage(receiver)
        if outage is None:
            return False
        match outage.way:
            case "hangs":
                await anyio.sleep(max(outage.end_s - anyio.current_time(), 0) + 300)
            case "loses answers":
                return self.dice.random() < 0.5 or self._down()
            case "asks to wait":
                raise SymphonyError(make_failure("busy", retry_after_ms=self.dice.randint(1, 30) * 1_000))
        return self._down()

    def _down(self) -> bool:
        raise SymphonyError(make_failure("down"))

    def took(self, key: str, version: int, *, is_lost: bool) -> None:
        """A receiver took something; its answer may be lost, or come late."""
        before = [each.version for each in self.arrivals if each.key == key]
        if before and max(before) > version:
            self.broken.append(f"{key}: {version} after {max(before)}")
        self.arrivals.append(Arrival(key, version, anyio.current_time()))
        if is_lost:
            self.lost[key] += 1
            raise SymphonyError(make_failure("the answer is lost"))


class Tracker:
    """A tracker with comments, moves and new issues."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._created: dict[str, Issue] = {}
        self._comments: dict[str, dict[str, str]] = defaultdict(dict)

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        if await self._world.ask("tracker"):
            raise SymphonyError(make_failure("the answer is lost"))
        return [make_issue(key, state=self._world.boards[key]) for key in ids]

    async def move_issue(self, issue_id: str, state: str) -> str:
        is_lost = await self._world.ask("tracker")
        self._world.boards[issue_id] = state
        self._world.took(f"move:{issue_id}", int(state.removeprefix("S")), is_lost=is_lost)
        return state

    async def list_comments(self, issue_id: str) -> Sequence[Comment]:
        if await self._world.ask("tracker"):
            raise SymphonyError(make_failure("the answer is lost"))
        return [Comment(id=key, body=body, mine=True) for key, body in self._comments[issue_id].items()]

    async def put_comment(self, issue_id: str, body: str, *, key: str, comment_id: str | None) -> str:
        del key  # markers are enough
        is_lost = await self._world.ask("tracker")
        name = comment_id or f"c{len(self._comments[issue_id]) + 1}"
        self._comments[issue_id][name] = body
        kind, version = body.splitlines()[-1].split()
        bodies = [each for each in self._comments[issue_id].values() if f"\n{kind} " in f"\n{each}"]
        if len(bodies) > 1:
            self._world.broken.append(f"{issue_id} has two comments of the kind {kind}")
        self._world.took(f"comment:{issue_id}:{kind}", int(version), is_lost=is_lost)
        return name

    def creation_problem(self) -> str | None:
        return None

    async def create_issue(self, new: IssueToCreate, *, key: str, since: datetime) -> Issue:
        assert since.year <= 2026, "the clock of the service may be behind"
        if await self._world.ask("tracker"):
            raise SymphonyError(make_failure("the answer is lost"))
        if key not in self._created:
            is_lost = await self._world.ask("tracker")
            self._created[key] = make_issue(f"new-{key}")
            name, version = new.title.split()
            self._world.took(f"issue:{name}", int(version), is_lost=is_lost)
        return self._created[key]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@dataclass
class Remote(FakeWorkspaces):
    """`origin`; a push finds what is there already."""

    world: World = field(default_factory=lambda: World(Random()))  # noqa: S311 - no secret
    heads: dict[str, int] = field(default_factory=dict)
    mirror: dict[str, int] = field(default_factory=dict)

    async def place(self, branch: str) -> Failure | None:
        del branch
        return None

    async def push(self, branch: str) -> Failure | None:
        try:
            with anyio.fail_after(STALL_S):  # git ends it then
                is_lost = await self.world.ask("origin")
            if self.heads.get(branch) != self.mirror[branch]:
                self.heads[branch] = self.mirror[branch]
                self.world.took(f"push:{branch}", self.mirror[branch], is_lost=is_lost)
        except TimeoutError:
            return make_failure("no headway")
        except SymphonyError as error:
            return error.failure
        return None


class Targets:
    """The targets of `notify`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def deliver(self, target: Any, batch: Sequence[Notification], **_: Any) -> None:
        name = target.settings.name
        try:
            with anyio.fail_after(10):
                is_lost = await self._world.ask(name)
        except (TimeoutError, SymphonyError) as error:
            raise DeliveryError(str(error)) from error
        for each in batch:
            key = f"notification:{name}:question:{each.key[1]}"
            self._world.lost[key] += is_lost
            self._world.took(key, int(each.message), is_lost=False)
        if is_lost:
            raise DeliveryError("the answer is lost")


class Steps(JobKind):
    """Stands in for the steps at a forge: it looks for its marker before it writes."""

    at_once: ClassVar[int] = 4

    def __init__(self, world: World, has: dict[str, int]) -> None:
        self._world = world
        self._has = has

    @override
    def is_needed(self, job: Job, state: State, context: RuntimeContext) -> bool:
        return True

    @override
    async def carry_out(self, attempt: Attempt) -> None:
        version = int(attempt.job.payload)
        if await self._world.ask("forge"):
            raise SymphonyError(make_failure("the answer is lost"))
        if self._has.get(attempt.job.key) != version:
            is_lost = await self._world.ask("forge")
            if not attempt.still_needed():
                return
            self._has[attempt.job.key] = version
            self._world.took(attempt.job.key, version, is_lost=is_lost)


class Daemons:
    """One daemon after the other on the same journal."""

    def __init__(self, world: World, place: Path) -> None:
        self.world = world
        more = ", ".join(
            f'{{"name": "{name}", "kind": "webhook", "url": "https://{name}.example", "gather_ms": {gather}}}'
            for name, gather in (("chat", 5_000), ("pager", 0))
        )
        self.remote = Remote(world=world)
        kept = SCHEDULE.model_dump(include={"cron", "title"})
        schedules = [{**kept, "name": f"s{number}"} for number in range(ISSUES)]
        self.context = make_context(
            place,
            cast("Any", Tracker(world)),
            self.remote,
            more=f'{{"notify": [{more}], "schedules": {json.dumps(schedules)}}}',
        )
        self.forge: dict[str, int] = {}
        self.state = make_state(blocked=[str(number) for number in range(ISSUES)])
        self.outbox: Outbox | None = None

    def next(self) -> Outbox:
        """The next daemon."""
        core = StoryCore(
            state=lambda: self.state, post=self._post, now_ms=lambda: round(anyio.current_time() * 1000)
        )
        deliveries = Deliveries(core, cast("Deliverer", Targets(self.world)), on_result=lambda *_: None)
        kinds: Mapping[str, JobKind] = {
            "comment": CommentWriter(),
            "issue": IssueCreations(on_created=lambda *_: None),
            "move": Moves(core),
            "push": Pushes(core),
            "notification": deliveries,
            "pull_request": Steps(self.world, self.forge),
        }
        before = self.outbox
        outbox = Outbox(self.context, kinds=kinds) if before is None else before.successor(kinds=kinds)
        outbox.state = self.state
        self.outbox = outbox
        return outbox

    def _post(self, event: Event | ActionRequest) -> None:
        """Take over the outcome of a push, as the scheduler does."""
        if not isinstance(event, Pushed):
            return
        result = self.state.results[event.issue_id]
        delivered = result.delivered
        if event.failure is None and delivered is not None and delivered.head == event.head:
            done = replace(result, delivered=structs.replace(delivered, pushed=True, to_push=False))
            self._set(self.state.changed(results={**self.state.results, event.issue_id: done}))

    def _set(self, state: State) -> None:
        self.state = state
        if self.outbox is not None:
            self.outbox.state = state

    def queue(self, kind: str, number: int, version: int) -> None:
        """Queue a newer version of something, as the daemon does."""
        outbox, issue = self.outbox, make_issue(str(number))
        assert outbox is not None
        key = f"{kind}:{number}"
        match kind:
            case "blocked" | "delivery":
                key = f"comment:{number}:{kind}"
                draft = CommentDraft(
                    issue_id=issue.id, issue_identifier=issue.identifier, kind=kind, body=f"{kind} {version}"
                )
                queue_comment(outbox.jobs, self.context, draft)
            case "move":
                seen = self.world.boards[issue.id]
                if self.world.by_person.get(issue.id):
                    return  # a person has it
                states = frozenset(f"s{each}" for each in range(version + 1))
                queue_move(
                    outbox.jobs,
                    self.context,
                    MoveIssue(
                        issue=replace(issue, state=seen),
                        state=f"S{version}",
                        reason=MoveReason.BLOCK,
                        only_from=states,
                    ),
                )
            case "issue":
                key, new = (
                    f"issue:s{number}",
                    IssueToCreate(title=f"s{number} {version}", body="", state="Todo"),
                )
                wanted = WantedIssue(schedule=f"s{number}", key=f"{version:032x}", new=new)
                queue_issue(outbox.jobs, self.context, wanted)
            case "push":
                key = f"push:symphony/{number}"
                self.remote.mirror[f"symphony/{number}"] = version
                delivered = DeliveredBranch(
                    work=WorkSize(commits=1, files_changed=1, insertions=1, deletions=0),
                    branch=f"symphony/{number}",
                    head=str(version),
                    to_push=True,
                )
                result = IssueResult(issue=issue, delivered=delivered)
                self._set(self.state.changed(results={**self.state.results, issue.id: result}))
                queue_push(outbox.jobs, PushBranch(issue=issue, branch=delivered.branch, head=delivered.head))
            case "chat" | "pager":
                key = f"notification:{kind}:question:{number}"
                subject = Subject(issue_id=issue.id, identifier=issue.identifier, title="T", state="Todo")
                notification = Notification(
                    id=f"n{version}", event="question", at_wall_ms=0, message=str(version), issue=subject
                )
                outbox.jobs.queue(
                    kind="notification",
                    key=key.removeprefix("notification:"),
                    receiver=receiver_of(kind),
                    issue_id=issue.id,
                    issue_identifier=issue.identifier,
                    payload=encode(notification),
                    wait_ms=5_000 if kind == "chat" else 0,
                )
            case _:
                key = f"pull_request:{number}"
                outbox.jobs.queue(
                    kind="pull_request",
                    key=str(number),
                    receiver="forge",
                    issue_id=issue.id,
                    issue_identifier=issue.identifier,
                    payload=str(version),
                )
        self.world.queued[key] = (version, anyio.current_time())


_RECEIVER_OF: Final = {
    "comment": "tracker",
    "issue": "tracker",
    "move": "tracker",
    "push": "origin",
    "pull_request": "forge",
}
_KINDS: Final = ("blocked", "delivery", "issue", "move", "push", "chat", "pager", "pull_request")


def _receiver(key: str) -> str:
    kind, name, *_ = key.split(":")
    return name if kind == "notification" else _RECEIVER_OF[kind]


async def play(seed: int, place: Path) -> World:
    """Play one schedule; `broken` of the world says which rules were broken."""
    dice = Random(seed)  # noqa: S311 - no secret
    world = World(dice)
    length_s = dice.choices((300, 1_800, 90_000), (10, 9, 1))[0]
    for receiver in RECEIVERS:
        world.outages[receiver] = []
        at_s = 0.0
        while dice.random() < 0.7:
            begin_s = at_s + dice.uniform(0, length_s / 3)
            end_s = min(begin_s + dice.uniform(1, length_s / 2), length_s)
            if begin_s < end_s:
                world.outages[receiver].append(Outage(begin_s, end_s, dice.choice(WAYS)))
            at_s = end_s + 1
    world.boards = {str(number): "S0" for number in range(ISSUES)}
    daemons = Daemons(world, place)
    begins_s = sorted(dice.uniform(0, length_s) for _ in range(dice.randint(0, 4)))
    orders = sorted(
        (dice.uniform(0, length_s), dice.choice(_KINDS), dice.randrange(ISSUES)) for _ in range(40)
    )
    version = 0
    for until_s in (*begins_s, length_s + 3 * GRACE_S):
        async with daemons.next().at_work():
            world.up_since_s = anyio.current_time()
            while orders and orders[0][0] < until_s:
                at_s, kind, number = orders.pop(0)
                await anyio.sleep(max(at_s - anyio.current_time(), 0))
                version += 1
                if kind == "move" and dice.random() < 0.2:
                    world.boards[str(number)], world.by_person[str(number)] = "Rework", anyio.current_time()
                else:
                    daemons.queue(kind, number, version)
            await anyio.sleep(max(until_s - anyio.current_time(), 0))
        if until_s <= length_s:
            world.kills += 1
            await anyio.sleep(dice.uniform(0, 30))
    _judge(world, daemons)
    return world


def _judge(world: World, daemons: Daemons) -> None:
    assert daemons.outbox is not None
    for key, (version, at_s) in world.queued.items():
        arrived = [each for each in world.arrivals if each.key == key and each.version == version]
        person_s = world.by_person.get(key.split(":")[1]) if key.startswith("move") else None
        if person_s is not None:
            if any(each.at_s > person_s + 10 for each in world.arrivals if each.key == key):
                world.broken.append(f"{key}: moved after a person moved it")
        elif not arrived:
            world.broken.append(f"{key}: {version} of {at_s:g} s did not arrive")
        allowed = 1 + world.kills + world.lost[key] if key.startswith("notification") else 1
        if key.startswith(("move", "comment")):
            allowed = 1 + world.kills + world.lost[key]  # the same state or text again changes nothing
        if len(arrived) > allowed:
            world.broken.append(f"{key}: arrived {len(arrived)} times")
        last = [one.end_s for one in world.outages[_receiver(key)]]
        since_s = max([at_s, world.up_since_s, *last])
        grace_s = GRACE_S + (STALL_S if key.startswith("push") else 0)
        if arrived and person_s is None and arrived[0].at_s > since_s + grace_s:
            world.broken.append(f"{key}: {arrived[0].at_s - since_s:g} s after the receiver was back")
    if daemons.outbox.journal:
        world.broken.append(f"still waiting: {sorted(daemons.outbox.journal)}")
