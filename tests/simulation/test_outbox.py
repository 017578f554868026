"""A job is done within a minute after its receiver is back, once and the newest of its key, in any world."""

from collections import Counter
from pathlib import Path
from secrets import randbelow

from harness.nightly import SCHEDULES
from harness.outbox_world import play
from kit.virtual_time import run

EACH = int(SCHEDULES or 6)
FIRST = randbelow(10**9) if SCHEDULES else 0


def test_no_outage_and_no_death_loses_undoes_or_doubles_a_job(tmp_path: Path) -> None:
    kinds, kills = Counter[str](), 0
    for seed in range(FIRST, FIRST + EACH):
        world = run(lambda seed=seed: play(seed, tmp_path))  # type: ignore[misc]  # of this turn of the loop
        assert not world.broken, f"seed {seed}"
        kinds.update(each.key.partition(":")[0] for each in world.arrivals)
        kills += world.kills
    assert set(kinds) == {"comment", "issue", "move", "push", "notification", "pull_request"}
    assert kills > EACH // 2, "they die often"
