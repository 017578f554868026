"""`symphony demo --learn`: a person's feedback on the work of the demo becomes a better skill."""

import json
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console

from symphony import to_thread
from symphony.api.models import Feedback, Stars
from symphony.cli.client import Client
from symphony.cli.endpoint import read_record
from symphony.cli.failures import CommandError
from symphony.daemon.clock import monotonic_ms
from symphony.domain import one_line
from symphony.library.model import Authorship, LibrarySkill, SkillText
from symphony.library.store import LIBRARY_FILE, Library
from symphony.scheduler import Command, Event, State, run_once_finished

_ISSUE: Final = "DEMO-1"
_RULE: Final = "Run the tests before you commit."
_LESSON: Final = [[{"append": "skills/house-style/SKILL.md", "text": f"- {_RULE}\n"}]]
_SKILL: Final = SkillText(
    name="house-style",
    description="How we work in this team.",
    when_to_use="Before each commit.",
    content="# House style\n\n- Commit small steps.\n",
)
_LOOK_S: Final = 0.1
_LEARNING: Final = frozenset({"waiting", "running"})


class DemoLearning:
    """Observes the demo's daemon, and runs beside it.

    Args:
        state_dir: the state directory of the daemon.
        console: gets what happens.
        scripted: the agent follows scripts, also that of the lesson.
    """

    def __init__(self, state_dir: Path, console: Console, *, scripted: bool) -> None:
        self._state_dir = state_dir
        self._console = console
        self._scripted = scripted
        self._finished = anyio.Event()
        self._library = Library(state_dir / LIBRARY_FILE)
        self.learned: LibrarySkill | None = None

    def prepare(self) -> None:
        """Put a skill into the library."""
        self._library.add(_SKILL, Authorship(author="symphony demo"))

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        """See whether the work is done."""
        del before, fact, commands
        if run_once_finished(after, monotonic_ms()):
            self._finished.set()

    async def run(self) -> None:
        """Give feedback, wait for what is learned, and accept it."""
        await self._finished.wait()
        comment = f"{_RULE}\n\n```scripted\n{json.dumps(_LESSON)}\n```\n" if self._scripted else _RULE
        self._print(f"\nA person rates the work on {_ISSUE}: 2 of 5 stars. “{_RULE}”")
        client = await to_thread.run_sync(self._client)
        await to_thread.run_sync(client.feedback, Stars(stars=2, comment=comment), _ISSUE)
        self._print("A learning run begins beside the work: an agent improves the skills of the library.")
        feedback = await self._wait(client)
        if not feedback.learning.proposals:
            self._print(f"Nothing was learned: {one_line(feedback.learning.reason or 'no skill changed')}")
            return
        await to_thread.run_sync(self._accept, feedback.learning.proposals)

    def _client(self) -> Client:
        record = read_record(self._state_dir)
        if record is None or record.endpoint is None:
            raise CommandError.of("the daemon of the demo does not answer", hint="run the demo again")
        return Client(record.endpoint)

    async def _wait(self, client: Client) -> Feedback:
        while True:
            issue = await to_thread.run_sync(client.issue, _ISSUE)
            if issue is not None and issue.feedback and issue.feedback[0].learning.state not in _LEARNING:
                return issue.feedback[0]
            await anyio.sleep(_LOOK_S)

    def _accept(self, proposals: tuple[int, ...]) -> None:
        for number in proposals:
            proposal = self._library.proposal(number)
            name = proposal.text.name
            self._print(f"Proposal {number} changes {name}, because of the work on {_ISSUE}.")
            self._print(f"`symphony library proposals {number}` shows the difference:")
            before = "" if proposal.before is None else proposal.before.content
            known = set(before.splitlines())
            for line in proposal.text.content.splitlines():
                self._print(f"  {' ' if line in known else '+'} {one_line(line)}")
            self.learned = self._library.accept(number, "symphony demo")
            self._print(f"A person accepts it, as by `symphony library accept {number}`:")
            self._print(f"{name} is at version {self.learned.version}.")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True, highlight=False)
