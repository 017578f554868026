import os
from collections.abc import Collection
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from symphony.config import RetentionSettings
from symphony.daemon.retention import (
    InUse,
    RetentionLimits,
    Surplus,
    keep_bounded,
    remove_surplus,
    surplus_files,
    surplus_threads,
)
from symphony.daemon.state_dir import StateDirectory
from symphony.journal.model import Retention, TrimResult

DAY_S = 86_400.0
NOW_S = 1_800_000_000.0
SETTINGS = RetentionSettings(max_age_days=10, max_log_bytes=100)


@pytest.fixture
def state_dir(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state")
    made.create()
    return made


def file(path: Path, size: int, days: float) -> Path:
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW_S - days * DAY_S, NOW_S - days * DAY_S))
    return path


def log(state_dir: StateDirectory, run_id: str, size: int, days: float) -> Path:
    return file(state_dir.stderr_log(run_id), size, days)


def found(state_dir: StateDirectory, *, live: Collection[str] = ()) -> dict[str, str]:
    surplus = surplus_files(state_dir, RetentionLimits.of(SETTINGS), live=live, now_s=NOW_S)
    return {one.path.name.split(".stderr")[0]: one.reason for one in surplus}


def test_nothing_goes_that_is_young_and_small(state_dir: StateDirectory) -> None:
    log(state_dir, "a", 50, 9.9)
    log(state_dir, "b", 50, 1)
    assert found(state_dir) == {}


def test_files_of_checks_go_as_logs_do_and_their_directory_with_the_last(state_dir: StateDirectory) -> None:
    for run in ("ended", "live"):
        (state_dir.artifacts / run).mkdir(parents=True)
        for name in ("a.xml", "b.xml"):
            file(state_dir.artifacts / run / name, 1, 11)
    surplus = surplus_files(state_dir, RetentionLimits.of(SETTINGS), live={"live"}, now_s=NOW_S)
    assert {one.path.parent.name for one in surplus} == {"ended"}
    assert remove_surplus(surplus) == ()
    assert [path.name for path in state_dir.artifacts.iterdir()] == ["live"]
    assert state_dir.logs.is_dir()


def test_logs_go_by_age_by_emptiness_and_by_size_the_oldest_first(state_dir: StateDirectory) -> None:
    log(state_dir, "old", 1, 10.1)
    log(state_dir, "empty", 0, 1)
    log(state_dir, "third", 50, 3)
    log(state_dir, "second", 60, 2)
    log(state_dir, "first", 40, 1)
    assert found(state_dir) == {
        "old": "it is older than 10 d",
        "third": "newer logs fill the 100 bytes that logs may take",
        "empty": "it is empty",
    }
    assert list(found(state_dir)) == ["old", "third", "empty"]


def test_the_log_of_a_live_run_stays_and_takes_no_room(state_dir: StateDirectory) -> None:
    log(state_dir, "live", 5_000, 20)
    log(state_dir, "other", 100, 1)
    assert found(state_dir, live=["live"]) == {}
    assert set(found(state_dir)) == {"live"}


def test_transcripts_go_with_the_logs(state_dir: StateDirectory) -> None:
    file(state_dir.transcript("live"), 90, 30)
    file(state_dir.transcript("old"), 1, 10.1)
    file(state_dir.transcript("young"), 60, 1)
    log(state_dir, "young", 50, 2)
    file(state_dir.transcript("link"), 1, 1).unlink()
    state_dir.transcript("link").symlink_to(state_dir.transcript("live"))
    assert found(state_dir, live=["live"]) == {
        "old.jsonl": "it is older than 10 d",
        "young": "newer logs fill the 100 bytes that logs may take",
    }


def test_damaged_journals_go_by_age_and_the_journal_never(state_dir: StateDirectory) -> None:
    file(state_dir.path / "journal.db", 5_000, 400)
    file(state_dir.path / "journal.db.damaged-20260101T000000Z", 5_000, 11)
    file(state_dir.path / "journal.db.damaged-20260101T000000Z-wal", 5_000, 11)
    file(state_dir.path / "journal.db.damaged-20270101T000000Z", 5_000, 9)
    surplus = surplus_files(state_dir, RetentionLimits.of(SETTINGS), live=(), now_s=NOW_S)
    assert [(one.kind, one.path.name, one.size) for one in surplus] == [
        ("damaged_journal", "journal.db.damaged-20260101T000000Z", 5_000),
        ("damaged_journal", "journal.db.damaged-20260101T000000Z-wal", 5_000),
    ]


def test_links_and_directories_are_not_ours(state_dir: StateDirectory, tmp_path: Path) -> None:
    mine = file(tmp_path / "mine", 10, 100)
    state_dir.stderr_log("link").symlink_to(mine)
    state_dir.stderr_log("directory").mkdir()
    assert found(state_dir) == {}


def test_an_age_that_is_asked_for_wins_over_the_settings(state_dir: StateDirectory) -> None:
    log(state_dir, "a", 10, 1.1)
    limits = RetentionLimits.of(SETTINGS, max_age_s=DAY_S)
    (one,) = surplus_files(state_dir, limits, live=(), now_s=NOW_S)
    assert one.reason == "it is older than 1 d"
    assert limits.journal == Retention(
        max_age_ms=86_400_000, max_runs=SETTINGS.max_runs, max_bytes=SETTINGS.max_journal_bytes
    )


def test_no_state_directory_is_nothing_to_do(tmp_path: Path) -> None:
    assert found(StateDirectory(tmp_path / "none")) == {}


def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    stuck = Surplus(path=tmp_path, kind="log", size=1, reason="")
    gone = Surplus(path=tmp_path / "gone", kind="log", size=1, reason="")
    assert remove_surplus([stuck, gone]) == (stuck,)


class FakeJournal:
    """Counts the trims; the second one fails, and a third one is the end."""

    def __init__(self, stop: anyio.CancelScope, *answers: TrimResult | Exception) -> None:
        self.policies: list[Retention] = []
        self._stop = stop
        self._answers = list(answers)

    async def trim(self, policy: Retention) -> TrimResult:
        self.policies.append(policy)
        answer = self._answers.pop(0)
        if not self._answers:
            self._stop.cancel()
        if isinstance(answer, Exception):
            raise answer
        return answer


def in_use(*, runs: frozenset[str] = frozenset(), threads: frozenset[str] = frozenset()) -> InUse:
    return InUse(settings=SETTINGS, runs=runs, threads=threads)


async def kept_bounded(state_dir: StateDirectory, *answers: TrimResult | Exception) -> FakeJournal:
    with anyio.CancelScope() as scope:
        fake = FakeJournal(scope, *answers)
        await keep_bounded(state_dir, fake.trim, in_use, 0)
    return fake


@pytest.mark.asyncio
async def test_a_daemon_looks_again_and_again_and_survives_a_failure(state_dir: StateDirectory) -> None:
    old = state_dir.stderr_log("a")
    old.write_bytes(b"x" * 500)
    with capture_logs() as logs:
        journal = await kept_bounded(state_dir, TrimResult(runs=2, events=5, bytes=7), ValueError("odd"))
    assert not old.exists()
    assert [policy.max_age_ms for policy in journal.policies] == [864_000_000] * 2
    assert [(line["event"], line.get("bytes")) for line in logs] == [
        ("history_trimmed", 507),
        ("retention_failed", None),
    ]


@pytest.mark.asyncio
async def test_the_log_of_a_run_that_begins_during_the_look_stays(state_dir: StateDirectory) -> None:
    asked: list[frozenset[str]] = [frozenset(), frozenset({"begun"})]
    begun, said_nothing = state_dir.stderr_log("begun"), state_dir.stderr_log("ended")
    begun.touch()
    said_nothing.touch()
    with anyio.CancelScope() as scope:
        trim = FakeJournal(scope, TrimResult()).trim
        await keep_bounded(state_dir, trim, lambda: in_use(runs=asked.pop(0) if asked else frozenset()), 0)
    assert begun.exists()
    assert not said_nothing.exists()


@pytest.mark.asyncio
async def test_nothing_is_told_where_nothing_went(state_dir: StateDirectory) -> None:
    with capture_logs() as logs:
        await kept_bounded(state_dir, TrimResult(), TrimResult())
    assert logs == []


def rollout(state_dir: StateDirectory, agent: str, thread: str, days: float) -> Path:
    folder = state_dir.path / "homes" / agent / "sessions" / "2026" / "11" / "21"
    folder.mkdir(parents=True, exist_ok=True)
    return file(folder / f"rollout-2026-11-21T10-00-00-{thread}.jsonl", 10, days)


def test_conversations_in_private_homes_go_by_age_but_those_that_a_claim_needs(
    state_dir: StateDirectory,
) -> None:
    old = rollout(state_dir, "codex", "thread-a", 10.1)
    rollout(state_dir, "codex", "thread-b", 30)
    rollout(state_dir, "mine", "thread-c", 9.9)
    found = surplus_threads(state_dir, RetentionLimits.of(SETTINGS), needed={"thread-b"}, now_s=NOW_S)
    assert found == (Surplus(path=old, kind="thread", size=10, reason="it is older than 10 d"),)


@pytest.mark.asyncio
async def test_a_daemon_removes_them_and_tells(state_dir: StateDirectory) -> None:
    old, needed = rollout(state_dir, "codex", "thread-a", 1), rollout(state_dir, "codex", "thread-b", 1)
    for path in (old, needed):
        os.utime(path, (0, 0))
    with anyio.CancelScope() as scope, capture_logs() as logs:
        trim = FakeJournal(scope, TrimResult()).trim
        await keep_bounded(state_dir, trim, lambda: in_use(threads=frozenset({"thread-b"})), 0)
    assert not old.exists()
    assert needed.exists()
    assert [(line["event"], line["files"], line["bytes"]) for line in logs] == [("threads_trimmed", 1, 10)]
