"""Ten thousand sessions through one daemon: what it holds after the first thousand and after the last."""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Program, Scene, until

_BATCH = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a daemon holds when so many sessions have ended and it has nothing to do.

    Attributes:
        sessions: those that have ended.
        pss_kb: memory (PSS) with the helpers, in KiB.
        descriptors: open file descriptors.
        threads: threads of the process.
        journal_kb: the journal's file with what SQLite keeps beside it, in KiB.
        log_files: files of agents' stderr.
    """

    sessions: int
    pss_kb: int
    descriptors: int
    threads: int
    journal_kb: int
    log_files: int


def soak(place: Path, agent: tuple[str, ...], *, sessions: int, every: int, limit: int) -> list[Held]:
    """Work boards of `_BATCH` issues off, one after the other; a look after each `every` sessions.

    Issues that are done leave the board, as they do where people close a sprint, so that what grows is what
    the daemon keeps by itself. They leave it after their workspaces are removed, because the daemon keeps the
    workspace of an issue that it does not find any more.
    """
    scene = Scene(place=place, agent=agent, limit=limit, switches=("--turn-ms", "1", "--move", "Done"))
    found = []
    with scene.run("symphony") as program:
        done = 0
        while done < sessions:
            batch = range(done, min(done + _BATCH, sessions))
            for number in batch:
                scene.issue(f"SOAK-{number}")
            done = batch.stop
            scene.wait_told("ended", done)
            until(lambda: None if any(scene.workspaces.glob("SOAK-*")) else True, "a workspace stays")
            for number in batch:
                (scene.board / f"SOAK-{number}.md").unlink()
            if done % every == 0 or done == sessions:
                found.append(_held(program, done))
    return found


def _held(program: Program, sessions: int) -> Held:
    time.sleep(1)  # what is done behind the last session: its log, its workspace, its comment
    program.settle()
    state = [path for path in program.scene.state.rglob("*") if path.is_file()]
    return Held(
        sessions=sessions,
        pss_kb=program.pss_kb,
        descriptors=program.descriptors,
        threads=program.threads,
        journal_kb=sum(path.stat().st_size for path in state if path.name.startswith("journal.db")) // 1024,
        log_files=sum(path.name.endswith(".stderr.log") for path in state),
    )
