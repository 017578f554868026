"""What a thread leaves on disk, so that a later process of the agent can go on with it.

One file per thread, replaced whole. A turn that did not come to its end is run again from its first step,
like a script that is run again from its first turn; a question that was asked before is not asked again.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from symphony.testing.scripted_agent.turn import Thread

__all__ = ["Memory"]


@dataclass(frozen=True, slots=True)
class Memory:
    """A directory of threads; null remembers nothing, which is what the agent does unless told otherwise."""

    folder: Path | None = None

    def keep(self, thread: Thread) -> None:
        """Write down how the thread stands."""
        if self.folder is None:
            return
        facts = {
            "cwd": str(thread.cwd),
            "instructions": thread.instructions,
            "skill_value": thread.skill_value,
            "usage": thread.usage,
            "script": thread.script,
            "turns_done": thread.turns_done,
            "asked": thread.asked,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{thread.id}.tmp"
        unfinished.write_text(json.dumps(facts), "utf-8")
        unfinished.replace(self.folder / f"{thread.id}.json")

    def recall(self, thread_id: str) -> Thread | None:
        """A thread as it stood last; null when nobody knows it."""
        file = None if self.folder is None else self.folder / f"{Path(thread_id).name}.json"
        if file is None or not file.is_file():
            return None
        facts = json.loads(file.read_text("utf-8"))
        return Thread(id=thread_id, **{**facts, "cwd": Path(facts["cwd"])})
