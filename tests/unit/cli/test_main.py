"""The command line as a whole: where it works, how it is asked for help, what its options mean."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from symphony.cli.main import main
from symphony.cli.options import nearest_workflow


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], prog_name="symphony")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without a workflow, and the current directory in a directory deep in it."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    top = tmp_path / "app"
    (top / ".git").mkdir(parents=True)
    (top / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(top / "src" / "deep")
    return top


# --- which WORKFLOW.md ---


def test_it_is_found_upwards_and_the_nearest_one_wins(repo: Path) -> None:
    (repo / "WORKFLOW.md").write_text("---\n---\n")
    assert nearest_workflow() == repo / "WORKFLOW.md"
    (repo / "src" / "WORKFLOW.md").write_text("---\n---\n")
    assert nearest_workflow() == repo / "src" / "WORKFLOW.md"
    Path("WORKFLOW.md").write_text("---\n---\n")
    assert nearest_workflow() == Path("WORKFLOW.md"), "as a person there would call it"


@pytest.mark.parametrize("top", ["a repository", "a worktree or submodule", "no repository"])
def test_none_of_above_the_repository_is_taken(repo: Path, top: str) -> None:
    (repo.parent / "WORKFLOW.md").write_text("---\n---\n")
    (repo / ".git").rmdir()
    if top == "no repository":
        (repo / "WORKFLOW.md").write_text("---\n---\n")
    elif top == "a repository":
        (repo / ".git").mkdir()
    else:
        (repo / ".git").write_text("gitdir: elsewhere\n")
    assert nearest_workflow() == Path("WORKFLOW.md")
    done = run("explain", "SYM-1")
    assert done.exit_code == 3
    assert f"cannot read {Path.cwd() / 'WORKFLOW.md'}" in done.stderr
    assert "-C DIR" in done.stderr.splitlines()[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_one_above_that_somebody_else_wrote_is_not_taken(repo: Path) -> None:
    (repo / "WORKFLOW.md").write_text("---\n---\n")
    os.chown(repo / "WORKFLOW.md", 12_345, -1)
    assert nearest_workflow() == Path("WORKFLOW.md")
    os.chown(Path.cwd(), 12_345, -1)
    assert nearest_workflow() == repo / "WORKFLOW.md", "it is that of the owner of the current directory"


def test_a_command_in_a_directory_below_is_about_the_repository(repo: Path) -> None:
    (repo / ".symphony" / "issues").mkdir(parents=True)
    assert run("issue", "new", "First").stdout.startswith("SYM-1")
    (repo / "WORKFLOW.md").write_text("---\ntracker: {kind: markdown\n---\nx\n")
    for command in (("check",), ("status",), ("run", "--once"), ("tracker", "check"), ("clean", "--dry-run")):
        done = run(*command)
        assert done.exit_code == 3, command
        assert f"{repo}/WORKFLOW.md:" in done.output


# --- where: -C ---


def test_it_works_in_another_directory_before_and_behind_the_command(repo: Path) -> None:
    (repo / ".symphony" / "issues").mkdir(parents=True)
    (repo / "notes.md").write_text("What to do.")
    start = Path.cwd()
    for arguments in (
        ("-C", repo, "issue", "new", "a", "-F", "notes.md"),
        ("issue", "-C", repo, "new", "a", "-F", "notes.md"),
        ("issue", "new", "a", "-F", "notes.md", "-C", repo),
        ("-C", repo, "-C", "src", "issue", "new", "a", "-F", "../notes.md"),
        ("-C", "..", "issue", "-C", "..", "new", "a", "-F", "notes.md"),
    ):
        os.chdir(start)
        done = run(*arguments)
        assert done.exit_code == 0, (arguments, done.stderr)
    assert len(list((repo / ".symphony" / "issues").glob("SYM-*.md"))) == 5


@pytest.mark.parametrize("directory", ["nowhere", "file", ""])
def test_a_directory_that_is_none_is_a_wrong_usage(repo: Path, directory: str) -> None:
    Path("file").touch()
    done = run("-C", directory, "status")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 2)
    assert repo.is_dir()


def test_a_current_directory_that_is_gone_is_told_in_one_line(repo: Path) -> None:
    Path.cwd().rmdir()
    for command in (("status",), ("issue", "list"), ("skills", "list"), ("init",), ("run",)):
        done = run(*command)
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 2), (command, done.stderr)
    assert run("-C", repo, "health").exit_code != 2


# --- help, version, typos ---


def _commands(
    command: click.Command, context: click.Context, *above: str
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield above, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, context, *above, name)


COMMANDS = dict(_commands(main, click.Context(main)))
LEAVES = {name: command for name, command in COMMANDS.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("name", COMMANDS, ids=" ".join)
def test_every_command_has_a_short_way_to_its_help_and_an_example(name: tuple[str, ...]) -> None:
    short = run(*name, "-h")
    assert (short.exit_code, short.stderr) == (0, "")
    assert short.stdout == run(*name, "--help").stdout == run("help", *name).stdout
    assert re.search(
        rf"Examples?:\n( .*\n)*?  +(.*\| )?(sudo )?{' '.join(('symphony', *name))}\b", short.stdout
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("stauts", "symphony status"),
        ("Status", "symphony status"),
        ("skills lst", "symphony skills list"),
        ("issue mov SYM-1 Done", "symphony issue move"),
        ("service instal", "symphony service install"),
        ("help tracker chekc", "symphony tracker check"),
        ("status --jsno", "--json"),
        ("run --onse", "--once"),
        ("completion bsh", "bash"),
    ],
)
def test_a_typo_is_answered_with_the_nearest(given: str, meant: str) -> None:
    done = run(*given.split())
    assert done.exit_code == 2
    assert meant in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    "given", ["xyzzy", "skills xyzzy", "help xyzzy", "help status xyzzy", "help --xyzzy"]
)
def test_what_is_near_nothing_is_told_where_to_look(given: str) -> None:
    done = run(*given.split())
    assert done.exit_code == 2
    assert "--help" in done.stderr.splitlines()[1]


# --- options ---

SHARED = {
    "-C": "Act as if started in DIR.",
    "--json": "Print JSON.",
    "--workflow": "The WORKFLOW.md to use.  [default: the nearest one upwards in the repository]",
    "--dry-run": "Only show what would be done.",
    "--file": "Read the text from a file; - is standard input.",
    "--force": "Replace existing files that differ.",
    "--yes": "Do not ask for confirmation.",
}
"""Options that mean the same to the letter wherever they are; docs/commands.md lists them too."""
OTHERWISE = {
    *((one, "--agent") for one in ("runs", "library assign", "library unassign")),
    ("status", "--reason"),
    ("move", "--to"),
}
"""Any name of `agents`, where --agent is one of a few kinds elsewhere; a code, where --reason is a text; a
state of the tracker, where --to is a format."""
SHORT = {"-f": "--follow", "-F": "--file", "-s": "--state", "-V": "--version"}
ACTING = {"completion", "help", "hosts prepare", "init", "run", "service install", "service uninstall"}
"""They start or make something, or print a text, and have no facts to tell as JSON."""


def _options() -> Iterator[tuple[str, click.Option, str]]:
    for name, command in COMMANDS.items():
        for option in command.params:
            for word in option.opts if isinstance(option, click.Option) else ():
                assert isinstance(option, click.Option)
                yield " ".join(name), option, word


@pytest.mark.parametrize(
    "command",
    [
        "review SYM-1 --send-back --approve",
        "answer SYM-1 --approve --deny",
        "prompt SYM-1 --envelope-only --prompt-only",
        "prompt SYM-1 --json --prompt-only",
        "library proposals --accepted --rejected",
        "diff SYM-1 --json --stat",
        "skills check --json --github",
    ],
)
def test_of_flags_that_exclude_each_other_none_wins(repo: Path, command: str) -> None:
    (repo / "WORKFLOW.md").write_text("---\ntracker: {kind: markdown}\n---\n")
    done = run(*command.split())
    assert done.exit_code == 2
    assert all(word in done.stderr for word in command.split() if word.startswith("--"))


def test_an_option_means_the_same_in_every_command() -> None:
    kinds: dict[str, object] = {}
    for command, option, word in _options():
        kind = option.is_flag or option.type.name
        assert (command, word) in OTHERWISE or kinds.setdefault(word, kind) == kind, (command, word)
        if word in SHARED:
            assert option.help == SHARED[word], (command, word)
        if word in SHORT:
            assert SHORT[word] in option.opts, (command, word)
        assert word not in {"--dir", "--path", "--workspace"} or command.partition(" ")[0] in {
            "demo",
            "instructions",
            "skills",
        }


def test_every_command_that_tells_something_tells_it_as_json() -> None:
    without = {" ".join(name) for name in LEAVES} - {
        command for command, _, word in _options() if word == "--json"
    }
    assert without == ACTING


def test_every_command_about_a_workflow_lets_it_be_named() -> None:
    without = {" ".join(name) for name in LEAVES} - {
        command for command, _, word in _options() if word == "--workflow"
    }
    assert without == {"completion", "demo", "help", "init", "replay"}


def test_the_shared_options_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
    for word in SHARED:
        assert re.search(rf"^\| [^|]*`{re.escape(word)}[ `]", text, re.MULTILINE), word
    for name in COMMANDS:
        assert " ".join(("symphony", *name)) in text
