"""Promise: what a person writes on an issue stands in the next prompt, once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.project import Project, scripted
from harness.real_agents import BOTH, Agent
from kit import model_server as models

LOOP = "{% for comment in issue.new_comments %}[{{ comment.author }}|{{ comment.body | fence }}]{% endfor %}"
BODY = "Do {{ issue.title }}.\n\n{{ issue.description }}"
REVIEW = {"tool": "board_move", "arguments": {"state": "Human Review"}}


def _prompts(project: Project) -> list[str]:
    """The first prompt of each run, oldest first."""
    found = []
    for path in (project.state_dir / "transcripts").glob("*.jsonl"):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        found.append(next(entry for entry in entries if entry["kind"] == "turn"))
    return [entry["prompt"] for entry in sorted(found, key=lambda entry: str(entry["at"]))]


def _comment(project: Project, text: str, *, author: str = "ann") -> None:
    done = project.symphony("issue", "comment", "SYM-1", text, "--author", author)
    assert done.returncode == 0, done.stderr


def _again(project: Project) -> str:
    """Move the issue back and run it once more; the prompt of that run."""
    assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0
    assert project.once().returncode in {0, 1}
    return _prompts(project)[-1]


@pytest.fixture
def board(project: Project) -> Project:
    project.workflow(body=BODY)
    project.issue("SYM-1", [{"commit": "One"}, REVIEW], [{"commit": "Two"}, REVIEW], [REVIEW], [REVIEW])
    return project


def test_a_comment_is_told_once_with_its_author_also_after_a_restart(board: Project) -> None:
    _comment(board, "Before the first run.")
    assert board.once().returncode == 0
    first = _prompts(board)[-1]
    _comment(board, "Please name it *blue*.\n```\n{{ issue.title }} @all\n")
    second, third = _again(board), _again(board)

    assert first.count("Before the first run.") == 1
    assert "Before the first run." not in second
    assert second.count("Please name it *blue*.") == 1
    assert "ann, 20" in second
    assert "{{ issue.title }} @all" in second, "it is data, and no template"
    assert "````text\nann" in second, "nothing in it closes its fence"
    assert "Please name it" not in third


def test_comments_of_agents_and_of_the_daemon_are_not_told(board: Project) -> None:
    board.issue(
        "SYM-1",
        [{"commit": "One"}, {"tool": "board_comment", "arguments": {"body": "I am done here."}}, REVIEW],
        [REVIEW],
    )
    assert board.once().returncode == 0
    assert "I am done here." in "".join(board.comments("SYM-1"))
    _write(board.repo / ".symphony/issues/SYM-1/comments", 1, "By an agent.", author="agent")
    _comment(board, "By a person.")

    told = _again(board).partition("since the last session")[2]  # the issue has the words of the agent

    assert "By a person." in told
    assert "By an agent." not in told
    assert "I am done here." not in told


@pytest.mark.slow
def test_one_that_was_edited_is_told_once_more(board: Project) -> None:
    _comment(board, "The first words.")
    assert board.once().returncode == 0
    (path,) = (board.repo / ".symphony/issues/SYM-1/comments").glob("*.md")
    told = []
    for word in ("second", "third"):
        path.write_text(path.read_text().replace("first", word).replace("second", word))
        told.append(_again(board))

    assert "The second words." in told[0]
    assert "words." not in told[1], "at most once more"


def test_a_template_shows_them_where_it_wants(project: Project) -> None:
    project.workflow(body=f"{LOOP} All: {{{{ issue.comments.size }}}}\n\n{{{{ issue.description }}}}")
    project.issue("SYM-1", [REVIEW], [REVIEW])
    _comment(project, "One.")
    assert project.once().returncode == 0
    _comment(project, "Two.")

    second = _again(project)

    assert second.startswith("[ann|```text\nTwo.\n```] All: 2")
    assert second.count("Two.") == 1


def test_the_preview_shows_what_will_be_told_and_tells_nothing(board: Project) -> None:
    _comment(board, "Look at this.")
    shown = [json.loads(board.symphony("prompt", "SYM-1", "--json").stdout) for _ in range(2)]

    explained = json.loads(board.symphony("explain", "SYM-1", "--json").stdout)
    assert [one["body"] for one in explained["new_comments"]] == ["Look at this."]
    assert [("Look at this." in each["prompt"], len(each["new_comments"])) for each in shown] == [
        (True, 1)
    ] * 2
    assert shown[0]["new_comments"][0]["author"] == "ann"
    assert board.once().returncode == 0
    assert "Look at this." in _prompts(board)[-1]


@pytest.mark.slow
def test_too_many_and_too_long_ones_are_bounded(board: Project) -> None:
    folder = board.repo / ".symphony/issues/SYM-1/comments"
    folder.mkdir(parents=True)
    for number in range(1_000):
        _write(folder, number, f"note {number}")
    _write(folder, 1_000, "x" * 1_000_000)
    assert board.once().returncode == 0

    prompt = _prompts(board)[-1]

    assert len(prompt) < 80_000
    assert "note 999" in prompt
    assert "note 1\n" not in prompt
    assert "left out" in prompt


def _write(folder: Path, number: int, text: str, *, author: str = "ann") -> None:
    at = f"2026-01-02T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    (folder / f"{number:06}.md").write_text(f"---\nauthor: {author}\ncreated_at: {at}\n---\n{text}\n")


def test_a_resumed_thread_is_told_only_the_new_ones(board: Project) -> None:
    board.workflow(command=scripted("--threads", str(board.root / "threads")), body=BODY)
    board.issue("SYM-1", [{"ask_input": "Which colour?"}], [{"commit": "It"}, REVIEW])
    _comment(board, "Mind the edges.")
    assert board.once().returncode == 1
    _comment(board, "Blue.")
    assert board.once().returncode in {0, 1}

    prompts = _prompts(board)

    assert "Mind the edges." in prompts[0]
    assert "Mind the edges." not in prompts[1]
    assert prompts[1].count("Blue.") == 1, "an answer is told as the answer, and not again"


@pytest.mark.parametrize("make", BOTH)
def test_a_real_agent_is_told_in_its_next_session(project: Project, make: Callable[[Project], Agent]) -> None:
    agent = make(project)
    project.workflow(**agent.sections)
    project.issue("SYM-1", text="[[work]] Make hello.txt.")
    move = agent.moves("Human Review")
    turn = (models.Answer(blocks=(move,)), models.Answer(blocks=(models.Text(text="Done."),)))
    told = []
    for words in ("Say it in blue.", None):
        if words is not None:
            _comment(project, words)
        with models.ModelServer({"work": turn}) as server, agent.home(server.base_url) as home:
            project.environment.update(home.env)
            with project.daemon("--once") as daemon:
                assert daemon.end() == 0, daemon.log.read_text()
        told.append(max(json.dumps(request.body).count("Say it in blue.") for request in server.requests))
        assert project.symphony("issue", "move", "SYM-1", "Todo").returncode == 0

    assert told == [1, 0]
