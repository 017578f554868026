"""Any frame of a hostile worker ends its run, or says nothing that the daemon knows better.

Frames are made from their types, so a new frame or field is attacked too.
"""

import dataclasses
import json
import math
import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from attack.conftest import Rounds
from harness.host_reporting import SECRET, door, sent
from kit.facts import changed
from symphony.daemon import frames
from symphony.daemon.frames import FrameError
from symphony.daemon.runs.transcript import MAX_TEXT_CHARS
from symphony.domain import MAX_COUNT, DeliveredBranch, Redaction, Tokens
from symphony.scheduler import Outcome, OutcomeKind, RunReport, RunStage

WORD = "c0ffee5e" * 5  # a token that could be a name
BAD_NUMBERS = (-1, 0, 10**9 + 1, 2**53 + 1, 2**63, 2**64 - 1, -(2**63))
NAMES = ("given", "deploy", "SYM-2", "2", "build-2", "d1-2", "main", "symphony/SYM-2", "/etc")
WELL_MADE: Mapping[str, str] = {
    "at": "2026-03-01T00:00:00.000Z",
    "head": "a" * 40,
    "thread_id": "0199a213-81c0-7800-8aa1-bbab2a035a53",
}
OF_THE_AGENT = frames.ToolCallAsked | frames.SkillsCollected
"""Their texts are arguments of a tool and files of a skill, which others judge."""


def hostile_text(random: Random) -> str:
    told = random.choice((SECRET, WORD))
    return random.choice(
        (
            told,
            f"\x1b[31m{told}\x07\n\u202e",
            "x" * random.choice((7_990, 65_530, random.randint(0, 70_000))) + told + "y" * 9_000,
            f"{told[:9]}\n  {told[9:]}",
            "-oProxyCommand=x",
            "",
            "\ud7ff\U0010ffff" * random.randint(1, 300),
        )
    )


class Maker:
    """Makes values of any type that a frame holds; `share` of their parts is hostile."""

    def __init__(self, random: Random, share: float) -> None:
        self.random, self.share = random, share

    def is_hostile(self) -> bool:
        return self.random.random() < self.share

    def make(self, kind: Any, name: str = "") -> Any:  # noqa: C901, PLR0911 - one case per type
        random, inner = self.random, get_args(kind)
        origin = get_origin(kind) or kind
        if origin in {Union, types.UnionType}:
            return self.make(random.choice(inner), name)
        if origin is Literal:
            return random.choice(inner)
        if origin is tuple:
            many = random.randint(0, 3) if inner[-1] is ... else len(inner)
            return tuple(self.make(inner[0] if inner[-1] is ... else inner[at], name) for at in range(many))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            keys, values = inner
            return {self.make(keys): self.make(values) for _ in range(random.randint(0, 3))}
        if origin is frozenset:
            return frozenset(self.make(inner[0]) for _ in range(random.randint(0, 3)))
        if origin is str:
            if self.is_hostile():
                return hostile_text(random)
            return WELL_MADE.get(name) or random.choice(NAMES)
        if origin is int:
            return random.choice(BAD_NUMBERS) if self.is_hostile() else random.randint(1, 9)
        if origin is float:
            return random.choice((math.nan, math.inf, -1.0, 1e300)) if self.is_hostile() else random.random()
        makers: Mapping[Any, Callable[[], Any]] = {
            Any: self.payload,
            bool: lambda: random.random() < 0.5,
            bytes: lambda: random.randbytes(random.randint(0, 99)),
            types.NoneType: lambda: None,
            Path: lambda: Path("/" + self.make(str)),
        }
        if origin in makers:
            return makers[origin]()
        if issubclass(origin, Enum):
            return random.choice(list(origin))
        assert dataclasses.is_dataclass(origin) or issubclass(origin, msgspec.Struct), origin
        return origin(**{field: self.make(each, field) for field, each in get_type_hints(origin).items()})

    def payload(self) -> Any:
        value = self.make(self.random.choice((str, int, float, bool)))
        for _ in range(self.random.choice((9, 40, 900)) if self.is_hostile() else 2):
            value = self.random.choice(([value], {"x": value}, {self.make(str): value}))
        return value


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from leaves(inner)
    else:
        yield value


def assert_believable(found: Any) -> None:
    encoded = msgspec.json.encode(found, enc_hook=str)
    assert len(encoded) < 1_000_000
    for leaf in leaves(json.loads(encoded)):
        if isinstance(leaf, str):
            is_told = any(secret[:20] in "".join(leaf.split()) for secret in (SECRET, WORD))
            assert isinstance(found, OF_THE_AGENT) or (len(leaf) <= MAX_TEXT_CHARS and not is_told)
        elif leaf is not None:
            assert abs(leaf) <= MAX_COUNT
    match found:
        case frames.Report(report=report):
            assert report.facts.branch in {None, "symphony/SYM-1"}
            assert report.facts.workspace_path in {None, "/home/agent/work/workspaces/SYM-1"}
            assert report.facts.turn_count in {0, 1}
        case frames.RunOutcome(outcome=outcome):
            assert outcome.delivered is None or outcome.delivered.branch == "symphony/SYM-1"
            assert not outcome.commented
        case frames.Logged(fields=said):
            own = {"issue_id": "1", "issue_identifier": "SYM-1", "run_id": "d1-1", "host": "build-1"}
            assert own.items() <= said.items()
        case frames.SkillsChanged(skills=skills):
            versions = {(one.name, one.library_version) for one in (*skills.listed, *skills.native)}
            assert {each for each in versions if each[1] is not None} <= {("given", 3)}
            assert skills.synced is None
        case frames.SkillsCollected(collected=collected):
            assert collected.written.directory == ".agents/skills"
            assert all(
                name == "given" and 1 <= one.version <= 3 for name, one in collected.written.skills.items()
            )
        case frames.InstructionsComposed(instructions=instructions):
            assert instructions.phase in {None, "build"}


def test_any_frame_of_a_host_ends_its_run_or_is_harmless(rounds: Rounds) -> None:
    passed = set()
    for random in rounds(100):
        by = door(redaction=Redaction([SECRET, WORD]))
        for kind in get_args(frames.WorkerFrame):
            try:
                found = sent(Maker(random, random.choice((0, 0.03, 0.3))).make(kind), by)
            except FrameError:
                continue
            assert_believable(found)
            passed.add(kind)
    assert passed == set(get_args(frames.WorkerFrame))


def test_any_honest_report_passes_with_its_numbers(rounds: Rounds) -> None:
    for random in rounds():
        counts: dict[str, Any] = {
            name: random.randint(0, 10**6)
            for name in ("event_count", "tool_calls", "unpriced_tokens", *Tokens.__struct_fields__)
        }
        report = changed(
            RunReport(stage=RunStage.STREAMING_TURN), turn_count=1, cost_usd=random.random(), **counts
        )
        assert sent(frames.Report(report=report)) == frames.Report(report=report)
        delivered = DeliveredBranch(branch="symphony/SYM-1", head=random.randbytes(20).hex())
        ended = frames.RunOutcome(outcome=Outcome(kind=OutcomeKind.SUCCEEDED, delivered=delivered))
        assert sent(ended) == ended
