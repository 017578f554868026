"""Promise: a transcript has everything that a real agent says and does, in order, whole, without secrets."""

import signal
from pathlib import Path

import pytest

from harness.project import Project, until
from harness.real_agents import BOTH, Agent
from kit import model_server as models
from symphony.journal.transcripts import (
    CommandEntry,
    EditEntry,
    MessageEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEntry,
    UsageEntry,
    latest,
    read_transcript,
)

SECRET = "fixture-value-that-nobody-may-read"
SAID = tuple(
    f"Text {number}, which takes the model a while to write, with a blank line\n\nand a list:\n- ünï {number}"
    for number in range(1, 4)
)
SLOW_MS = 100


@pytest.fixture(params=BOTH)
def agent(request: pytest.FixtureRequest, project: Project) -> Agent:
    made: Agent = request.param(project)
    project.environment["TRACKER_TOKEN"] = SECRET
    project.workflow(**made.sections)
    project.issue("SYM-1", text=f"[[work]] The password of the fixture is {SECRET}.")
    return made


def slowly(text: str, *blocks: models.Block) -> models.Answer:
    """The model writes a text in pieces, and then calls tools."""
    return models.Answer(blocks=(models.Text(text=text), *blocks), delta_ms=SLOW_MS)


def transcript(project: Project) -> tuple[Path, tuple[TranscriptEntry, ...]]:
    """The only transcript, which lacks nothing."""
    (path,) = (project.state_dir / "transcripts").glob("*.jsonl")
    page = read_transcript(path, live=True)
    assert page.missing == ()
    assert [entry.seq for entry in page.entries] == list(range(1, len(page.entries) + 1))
    return path, page.entries


def test_every_text_of_a_slow_agent_is_there_in_order_and_whole(project: Project, agent: Agent) -> None:
    target = project.workspaces / "SYM-1" / "hello.txt"
    work = (
        slowly(SAID[0], agent.write(target, "hello")),
        slowly(SAID[1], agent.run(f"git add hello.txt && git commit -m 'Say {SECRET}'")),
        models.Answer(blocks=(agent.moves("Done"),)),
        slowly(SAID[2]),
    )
    with models.ModelServer({"work": work}) as server, agent.home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon("--once") as daemon:
            assert daemon.end() == 0, daemon.log.read_text()
    path, entries = transcript(project)
    assert SECRET not in path.read_text()

    messages = [entry for entry in latest(entries) if isinstance(entry, MessageEntry)]
    assert [(entry.text, entry.status) for entry in messages] == [(text, "complete") for text in SAID]
    kinds = [type(entry) for entry in latest(entries) if not isinstance(entry, UsageEntry)]
    assert kinds == [
        *(TurnEntry, MessageEntry, EditEntry, MessageEntry, CommandEntry, ToolEntry, MessageEntry, TurnEntry)
    ]
    begun, *_, ended = (entry for entry in entries if isinstance(entry, TurnEntry))
    assert "[[work]] The password of the fixture is" in (begun.prompt or "")
    assert (begun.status, ended.status) == ("started", "completed")
    (edit,) = (entry for entry in latest(entries) if isinstance(entry, EditEntry))
    assert [(Path(file.path).name, file.added) for file in edit.files] == [("hello.txt", 1)]
    (command,) = (entry for entry in latest(entries) if isinstance(entry, CommandEntry))
    assert (command.status, command.exit_code) == ("completed", 0)
    assert "1 file changed" in command.output
    (moved,) = (entry for entry in latest(entries) if isinstance(entry, ToolEntry))
    assert moved.name.endswith("board_move")
    assert (moved.status, "Done" in moved.arguments) == ("completed", True)
    used = [entry.total_tokens for entry in entries if isinstance(entry, UsageEntry)]
    assert used[-1] == project.tokens()[0]

    shown = project.symphony("transcript", "SYM-1").stdout
    places = [shown.index(f"Text {number}, which") for number in range(1, 4)]
    assert places == sorted(places)
    assert "Text 3, which takes the model a while" in project.symphony("logs", "SYM-1").stdout


def test_kill_9_in_the_middle_of_a_message_keeps_what_was_said(project: Project, agent: Agent) -> None:
    endless = " ".join(f"word{number}" for number in range(2_000))
    work = (slowly(SAID[0], agent.run("echo hello")), slowly(endless))
    with models.ModelServer({"work": work}) as server, agent.home(server.base_url) as home:
        project.environment.update(home.env)
        with project.daemon() as daemon:

            def written() -> bool | None:
                if not (project.state_dir / "transcripts").is_dir():
                    return None
                for path in (project.state_dir / "transcripts").glob("*.jsonl"):
                    for entry in latest(read_transcript(path, live=True).entries):
                        if isinstance(entry, MessageEntry) and "word5" in entry.text:
                            return True
                return None

            until(written, daemon.log.read_text)
            daemon.signal(signal.SIGKILL)
            daemon.end()
    _, entries = transcript(project)
    first, second = (entry for entry in latest(entries) if isinstance(entry, MessageEntry))
    assert (first.text, first.status) == (SAID[0], "complete")
    assert (second.status, endless.startswith(second.text)) == ("writing", True)
    (command,) = (entry for entry in latest(entries) if isinstance(entry, CommandEntry))
    assert (command.exit_code, command.output.strip()) == (0, "hello")
