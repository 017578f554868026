import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from harness.shell import word
from published.schemas import conforms_to
from symphony.cli.commands import service
from symphony.cli.commands.service import (
    Instance,
    Locations,
    drop_in,
    instance_name,
    plan_instance,
    unit_template,
    workflow_of_drop_in,
)
from symphony.cli.failures import CommandError
from symphony.cli.main import main

ROOT = Path(__file__).parents[4]
SHOWN = """\
ActiveState=active
SubState=running
Result=success
StatusText=1 running, 0 retrying, 0 blocked
MainPID=4711
NRestarts=2
ExecMainStatus=0
UnitFileState=enabled
ActiveEnterTimestamp=Sat 2026-11-21 20:00:00 UTC
"""


class Machine:
    """A machine below `root`, on which systemctl notes what it was asked and answers from a file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.locations = Locations.for_system(root)
        self.locations.booted.mkdir(parents=True)
        self.said = root / "said"
        self.answer = root / "answer"
        self.answer.write_text(SHOWN)
        self.programs = root / "programs"
        self.programs.mkdir()
        self.program(
            "systemctl",
            f'case "$*" in *show*) cat {word(self.answer)};; esac',
        )

    def program(self, name: str, does: str = "") -> None:
        file = self.programs / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {word(self.said)}\n{does}\n')
        file.chmod(0o755)

    def asked(self) -> list[str]:
        """What its programs were called with since the last time."""
        lines = self.said.read_text().splitlines() if self.said.exists() else []
        self.said.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "machine")
    made.program("id")
    monkeypatch.setattr(Locations, "for_system", lambda: made.locations)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(made.programs), prepend=":")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: name)
    return made


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    return write_workflow(tmp_path / "my app!", "tracker: {kind: markdown}\nworkspace: {root: ~/w, repo: .}")


def write_workflow(directory: Path, front: str) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "WORKFLOW.md"
    file.write_text(f"---\n{front}\n---\nDo {{{{ issue.title }}}}.\n")
    return file


def symphony(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def install(*arguments: str | Path) -> Result:
    return symphony("service", "install", *arguments)


# --- the texts -------------------------------------------------------------------------------------------


def instance(**changes: Any) -> Instance:
    made = Instance(
        name="app",
        workflow=Path("/srv/app/WORKFLOW.md"),
        account="symphony",
        path=("/usr/bin", "/bin"),
        writable=(Path("/srv/app"),),
    )
    return structs.replace(made, **changes)


@pytest.mark.parametrize("name", ["symphony@.service", "user/symphony@.service"])
def test_the_unit_of_the_package_is_the_one_that_is_deployed(name: str) -> None:
    ours = unit_template(of_user="/" in name)
    assert ours == (ROOT / "deploy" / "systemd" / name).read_text(encoding="utf-8")
    assert ours.startswith("# Written by `symphony service install")


def test_the_file_of_an_instance_names_program_workflow_and_what_may_be_written() -> None:
    text = drop_in(instance())
    assert workflow_of_drop_in(text) == "/srv/app/WORKFLOW.md"
    assert 'RequiresMountsFor="/srv/app"' in text, "without it a late mount is a missing workflow"
    assert "\nExecStart=\nExecStart=" in text
    program = f'"{sys.executable}" "-m" "symphony"'
    assert f'{program} "run" "--log-format" "json" "/srv/app/WORKFLOW.md"' in text
    assert "User=symphony" in text
    assert 'ReadWritePaths="-/srv/app"' in text


def test_a_service_of_a_person_has_their_rights() -> None:
    text = drop_in(instance(account=None, workflow=Path("/home/alice/app/WORKFLOW.md"), writable=()))
    assert "User=" not in text
    assert "ReadWritePaths" not in text


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({}, False),
        ({"workflow": Path("/home/alice/app/WORKFLOW.md")}, True),
        ({"writable": (Path("/srv/app"), Path("/root/workspaces"))}, True),
        ({"path": ("/usr/bin", "/home/alice/.local/bin")}, True),
    ],
    ids=["nothing", "the repository", "workspaces", "a program"],
)
def test_homes_can_be_read_where_something_lies_in_one(
    changes: dict[str, Any], *, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/symphony/bin/python")
    assert ("ProtectHome=read-only" in drop_in(instance(**changes))) == read


def test_words_that_mean_something_to_systemd_are_only_words() -> None:
    odd = Path('/srv/50%/$HOME "x" \\n')
    text = drop_in(instance(workflow=odd / "WORKFLOW.md", writable=(odd,), path=("/a b", "/c%d")))
    assert r'"/srv/50%%/$$HOME \"x\" \\n/WORKFLOW.md"' in text
    assert r'ReadWritePaths="-/srv/50%%/$HOME \"x\" \\n"' in text
    assert 'Environment="PATH=/a b:/c%%d"' in text
    assert workflow_of_drop_in(text) == str(odd / "WORKFLOW.md")


def test_a_path_that_no_unit_file_can_hold_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot contain"):
        drop_in(instance(workflow=Path("/srv/a\nb/W.md")))


def test_a_file_of_others_serves_no_workflow_of_ours() -> None:
    assert workflow_of_drop_in("[Service]\n# workflow: /x\n") is None
    assert workflow_of_drop_in(unit_template(of_user=False)) is None


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("app", "app"),
        ("my-app.2", "my-app.2"),
        ("my app!", "my-app"),
        ("a:b", "a-b"),
        ("ünï", "n"),
        ("...", "repository"),
        ("x" * 80, "x" * 64),
    ],
)
def test_an_instance_is_called_like_its_directory_in_letters_that_need_no_escape(
    tmp_path: Path, directory: str, name: str
) -> None:
    assert instance_name(tmp_path / directory / "WORKFLOW.md", None) == name


# --- installing ------------------------------------------------------------------------------------------


def carried_out(script: str) -> None:
    """What root does with what was printed."""
    done = subprocess.run(["/bin/sh"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_unit_and_the_commands_are_printed_for_root_and_nothing_is_done(
    machine: Machine, workflow: Path
) -> None:
    done = install(workflow)
    assert done.exit_code == 0, done.output
    assert (machine.asked(), machine.locations.units.exists()) == ([], False)
    assert "\nWatchdogSec=60\n" in done.stdout
    assert "Then: systemctl start symphony@my-app.service" in done.stderr
    carried_out(done.stdout)
    assert machine.locations.template.read_text() == unit_template(of_user=False)
    assert workflow_of_drop_in(machine.locations.drop_in("my-app").read_text()) == str(workflow)
    assert machine.locations.credentials("my-app").stat().st_mode & 0o777 == 0o700
    assert machine.asked() == [
        "id symphony",
        "systemctl daemon-reload",
        "systemctl enable symphony@my-app.service",
    ]


def test_again_it_writes_what_differs(machine: Machine, workflow: Path) -> None:
    carried_out(install(workflow).stdout)
    machine.locations.template.write_text("# Written by `symphony service install`, long ago\n")
    carried_out(install(workflow, "--now").stdout)
    assert machine.locations.template.read_text() == unit_template(of_user=False)
    assert machine.asked()[-1] == "systemctl enable --now symphony@my-app.service"


def test_a_user_that_is_missing_ends_the_commands_before_anything_is_written(
    machine: Machine, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    done = install(workflow)
    assert "useradd --system " in done.stderr
    machine.program("id", "exit 1")
    ended = subprocess.run(["/bin/sh"], input=done.stdout, text=True, check=False)
    assert ended.returncode == 1
    assert (machine.asked(), machine.locations.units.exists()) == (["id symphony"], False)
    assert "useradd" not in install(workflow, "--user").stderr


def test_secrets_that_are_not_there_yet_are_named_and_no_reason_to_stop(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    states = "active_states: [open], terminal_states: [closed]"
    repo = "workspace: {root: ~/w, repo: 'https://example.org/a.git'}"
    front = f"tracker: {{kind: github, {states}, provider: {{repo: a/b%s}}}}\n{repo}"
    workflow = write_workflow(tmp_path / "app", front % ", api_key: $MY_TOKEN")
    done = install(workflow, "--now")
    assert done.exit_code == 0, done.output
    place = machine.locations.credentials("app")
    assert f"Put each secret into a file of its name in {place}: MY_TOKEN" in done.stderr
    assert "Then: systemctl restart symphony@app.service" in done.stderr
    place.mkdir(parents=True)
    (place / "MY_TOKEN").write_text("x")
    assert "Put each secret" not in install(workflow, "--now").stderr
    write_workflow(tmp_path / "app", front % "")
    assert "GITHUB_TOKEN" in install(workflow).stderr


def test_it_does_without_a_look_at_secrets_that_cannot_be_looked_at(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a person who is not root, and whom the directory is closed to."""
    unseen = structs.replace(machine.locations, settings=machine.root / ("x" * 300))
    monkeypatch.setattr(Locations, "for_system", lambda: unseen)
    states = "active_states: [open], terminal_states: [closed]"
    front = f"tracker: {{kind: github, {states}, provider: {{repo: a/b, api_key: $MY_TOKEN}}}}"
    done = install(write_workflow(tmp_path / "app", front))
    assert done.exit_code == 0, done.output
    assert "Put each secret into a file" in done.stderr


@pytest.mark.usefixtures("machine")
def test_a_name_that_is_taken_by_another_repository_is_refused(workflow: Path, tmp_path: Path) -> None:
    carried_out(install(workflow).stdout)
    other = write_workflow(tmp_path / "other", "tracker: {kind: markdown}")
    done = install(other, "--name", "my-app")
    assert done.exit_code == 1
    assert f"error: a service of this name serves {workflow} already\n" in done.stderr
    assert install(other).exit_code == 0


def test_files_that_somebody_else_wrote_stay(machine: Machine, workflow: Path) -> None:
    machine.locations.units.mkdir(parents=True)
    machine.locations.template.write_text("[Service]\n")
    done = install(workflow)
    assert done.exit_code == 1
    assert "symphony did not write it" in done.stderr
    carried_out(symphony("service", "uninstall", workflow).stdout)
    assert machine.locations.template.read_text() == "[Service]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--name", "a b"), 2, "no service can be called 'a b'"),
        (("--name", "-x"), 2, ""),
        (("--user", "--as", "bob"), 2, "--as is of services of the machine"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    machine: Machine,
    workflow: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    done = install(workflow, *arguments)
    assert (done.exit_code, told in done.stderr) == (code, True)
    assert machine.asked() == []


def test_an_entry_of_path_that_weakens_the_unit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_workflow(tmp_path / "app", "tracker: {kind: markdown}\nworkspace: {root: /srv/w}")
    home, closed, opened = tmp_path / "home", tmp_path / "closed", tmp_path / "open"
    for folder in (home, closed, opened):
        folder.mkdir()
    closed.chmod(0o755)
    opened.chmod(0o777)
    monkeypatch.setattr(service, "_HOMES", (home,))

    def named(path: str) -> list[str]:
        plan = plan_instance(
            file, name="app", locations=Locations.for_system(), account=None, environment={"PATH": path}
        )
        told = [note for note in plan.notes if note.startswith("PATH has")]
        return [note.removeprefix("PATH has ").partition(",")[0] for note in told]

    assert named(f"{closed}:{home}/bin:/nowhere:relative:") == [f"{home}/bin"]
    assert named(f"{closed}:{opened}") == [str(opened)]
    assert named(f"{closed}:/usr/bin") == []
    monkeypatch.setattr(service, "_HOMES", (home, tmp_path))
    assert named(f"{closed}:{home}/bin") == [], "homes are needed anyway"


def test_a_place_for_secrets_that_others_may_enter_is_closed(machine: Machine, workflow: Path) -> None:
    place = machine.locations.credentials("my-app")
    place.mkdir(parents=True)
    place.chmod(0o755)
    carried_out(install(workflow).stdout)
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_service_has_the_rights_of_the_user_that_is_named(machine: Machine, workflow: Path) -> None:
    carried_out(install(workflow, "--as", "alice").stdout)
    assert "User=alice\n" in machine.locations.drop_in("my-app").read_text()


def test_only_a_running_systemd_can_be_asked(machine: Machine, workflow: Path) -> None:
    machine.locations.booted.rmdir()
    refused = symphony("service", "status", workflow)
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (1, "error: systemd does not run here")
    assert refused.stderr.splitlines()[1].startswith("hint: ")
    assert install(workflow).exit_code == 0, "what is printed can be for another machine"


def test_a_workflow_that_is_not_valid_is_refused_before_anything_is_written(
    machine: Machine, tmp_path: Path
) -> None:
    done = install(write_workflow(tmp_path / "app", "tracker: {kind: nothing}"))
    assert done.exit_code == 3
    assert not machine.locations.units.exists()
    assert install(tmp_path / "none.md").exit_code == 3


def test_a_path_that_no_unit_file_can_hold_is_refused_before_anything_is_written(
    machine: Machine, tmp_path: Path
) -> None:
    done = install(write_workflow(tmp_path / "a\nb", "tracker: {kind: markdown}\nworkspace: {root: ~/w}"))
    assert (done.exit_code, "cannot contain" in done.stderr) == (1, True)
    assert (machine.asked(), machine.locations.units.exists()) == ([], False)


# --- what it finds ---------------------------------------------------------------------------------------


def found(workflow: Path, locations: Locations, **environment: str) -> Instance:
    environment = {"PATH": "/usr/bin:relative:/bin", **environment}
    return plan_instance(workflow, name="app", locations=locations, account=None, environment=environment)


def test_a_local_repository_and_workspaces_elsewhere_may_be_written(tmp_path: Path) -> None:
    front = f"tracker: {{kind: markdown}}\nworkspace: {{root: /data/w, repo: {tmp_path}/other}}"
    file = write_workflow(tmp_path / "app", front)
    made = found(file, Locations.for_system())
    assert made.writable == (file.parent, tmp_path / "other", Path("/data/w"))
    assert made.path == ("/usr/bin", "/bin"), "programs are found where the installing shell finds them"


def test_workspaces_below_the_state_directory_are_those_of_the_service(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "of-a-shell"))
    file = write_workflow(
        tmp_path / "app", "tracker: {kind: markdown}\nworkspace: {root: $SYMPHONY_STATE_DIR/workspaces}"
    )
    told = install(file)
    assert told.exit_code == 0, told.stderr
    assert "SYMPHONY_STATE_DIR" not in told.stderr
    look = found(file, machine.locations, SYMPHONY_STATE_DIR=str(tmp_path / "of-a-shell"))
    assert look.writable == (file.parent, Path("/var/lib/symphony/app/workspaces"))
    assert not any("workspace.root" in note for note in look.notes)


def test_what_lies_in_the_temp_directory_is_told_as_the_service_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_TEMPORARY", (Path("/tmp"),))
    file = write_workflow(tmp_path / "app", "tracker: {kind: markdown}")
    notes = found(file, Locations.for_system()).notes
    assert any(note.startswith("workspace.root is in the temp directory") for note in notes)
    person = found(file, Locations.for_user({"HOME": str(tmp_path)}))
    assert not any("temp directory" in note for note in person.notes), "theirs is that of the machine"
    file = write_workflow(tmp_path / "app", "tracker: {kind: markdown}\nworkspace: {root: ~/w}")
    monkeypatch.setattr(service, "_TEMPORARY", (tmp_path,))
    (note,) = [note for note in found(file, Locations.for_system()).notes if "temp directory" in note]
    assert note.startswith(f"{file} is in the temp directory")


@pytest.mark.parametrize("of_user", [False, True])
def test_what_the_file_refers_to_and_a_service_does_not_have_is_named(
    tmp_path: Path, *, of_user: bool
) -> None:
    front = """tracker:
  {kind: github, active_states: [open], terminal_states: [closed], provider: {repo: a/b, api_key: $GH_LOGIN}}
workspace: {root: $WORK_PLACE}
agent: {kind: fast}
agents: {fast: {kind: codex, env: [NPM_TOKEN, FLAVOUR]}}
hooks: {before_run: 'echo $NOT_OURS $HOME'}"""
    file = write_workflow(tmp_path / "app", front)
    locations = Locations.for_user({"HOME": str(tmp_path)}) if of_user else Locations.for_system()
    made = found(file, locations, WORK_PLACE=str(tmp_path / "w"))
    assert made.secrets == ("NPM_TOKEN",)
    edit = "systemctl --user edit" if of_user else "systemctl edit"
    how = f"{edit} symphony@app.service, [Service], Environment=FLAVOUR=… GH_LOGIN=… WORK_PLACE=…"
    assert made.notes[:2] == (
        f"The service has no FLAVOUR, GH_LOGIN, WORK_PLACE: {how}",
        "A secret among them needs a name that ends in one of _KEY, _TOKEN, _SECRET, _PASSWORD, _PAT",
    )


# --- a service of a person -------------------------------------------------------------------------------


def test_a_person_has_services_of_their_own(
    machine: Machine, workflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    refused = install(workflow, "--user")
    assert (refused.exit_code, "your own systemd does not run here" in refused.stderr) == (1, True)
    (tmp_path / "runtime" / "systemd").mkdir(parents=True)
    machine.asked()
    machine.program("systemctl", "echo 'no bus' >&2; exit 1")
    failed = install(workflow, "--user")
    assert (failed.exit_code, "error: no bus\n" in failed.stderr) == (1, True)
    machine.program("systemctl")
    machine.asked()
    done = install(workflow, "--user", "--now")
    assert done.exit_code == 0, done.output
    assert machine.asked() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now symphony@my-app.service",
    ]
    units = tmp_path / "home" / ".config" / "systemd" / "user"
    text = (units / "symphony@my-app.service.d" / "symphony.conf").read_text()
    assert "User=" not in text
    assert f"{machine.programs}:" in text
    assert "WantedBy=default.target" in (units / "symphony@.service").read_text()
    assert "loginctl enable-linger" in done.stderr
    assert "journalctl --user -u symphony@my-app.service -f" in done.stderr


# --- taking it away, and looking at it -------------------------------------------------------------------


def test_what_was_installed_goes_again_but_not_the_secrets(
    machine: Machine, workflow: Path, tmp_path: Path
) -> None:
    other = write_workflow(tmp_path / "other", "tracker: {kind: markdown}\nworkspace: {root: ~/w}")
    carried_out(install(workflow).stdout)
    carried_out(install(other).stdout)
    machine.asked()
    first = symphony("service", "uninstall", workflow)
    assert (first.exit_code, machine.asked()) == (0, []), first.output
    carried_out(first.stdout)
    assert machine.asked() == [
        "systemctl disable --now symphony@my-app.service",
        "systemctl daemon-reload",
        "systemctl reset-failed symphony@my-app.service",
    ]
    assert machine.locations.template.exists()
    assert not machine.locations.drop_in("my-app").parent.exists()
    assert machine.locations.credentials("my-app").exists()
    beside = machine.locations.drop_in("other").with_name("mine.conf")
    beside.touch()
    carried_out(symphony("service", "uninstall", other).stdout)
    assert not machine.locations.template.exists()
    assert beside.exists()
    carried_out(symphony("service", "uninstall", other).stdout)


@pytest.mark.parametrize("command", ["uninstall", "status"])
def test_a_service_of_another_repository_is_left_alone_unless_it_is_named(
    machine: Machine, workflow: Path, tmp_path: Path, command: str
) -> None:
    carried_out(install(workflow).stdout)
    (tmp_path / "elsewhere").mkdir()
    twin = write_workflow(tmp_path / "elsewhere" / "my app!", "tracker: {kind: markdown}")
    machine.asked()
    refused = symphony("service", command, twin)
    assert (refused.exit_code, machine.asked()) == (1, [])
    assert refused.stderr.splitlines() == [
        f"error: symphony@my-app serves {workflow}, and not {twin}",
        "hint: name the service that is meant with --name",
    ]
    (tmp_path / "link").symlink_to(workflow.parent)
    assert symphony("service", command, tmp_path / "link" / "WORKFLOW.md").exit_code == 0
    assert symphony("service", command, twin, "--name", "my-app").exit_code == 0


def test_uninstalling_goes_on_where_there_is_nothing_to_stop(machine: Machine, workflow: Path) -> None:
    machine.program("systemctl", 'case "$1" in disable|reset-failed) exit 1;; esac')
    carried_out(symphony("service", "uninstall", workflow).stdout)
    assert len(machine.asked()) == 3


@pytest.mark.usefixtures("machine")
def test_the_state_of_a_service_is_told_for_people_and_programs(workflow: Path) -> None:
    carried_out(install(workflow).stdout)
    done = symphony("service", "status", workflow)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "symphony@my-app.service  active (running)"
    assert "1 running, 0 retrying, 0 blocked" in done.stdout
    assert "ended" not in done.stdout
    told = json.loads(symphony("service", "status", workflow, "--json").stdout)
    conforms_to("service-status", told)
    assert told == {
        "name": "my-app",
        "unit": "symphony@my-app.service",
        "of_user": False,
        "installed": True,
        "workflow": str(workflow),
        "active": "active",
        "sub": "running",
        "result": "success",
        "enabled": "enabled",
        "status_text": "1 running, 0 retrying, 0 blocked",
        "main_pid": 4711,
        "restarts": 2,
        "exit_status": 0,
        "since": "Sat 2026-11-21 20:00:00 UTC",
    }


def test_a_service_that_is_down_or_not_there_is_exit_code_1(machine: Machine, workflow: Path) -> None:
    machine.answer.write_text(
        "ActiveState=failed\nSubState=failed\nResult=exit-code\nExecMainStatus=3\nMainPID=0\n"
    )
    done = symphony("service", "status", workflow)
    assert done.exit_code == 1
    assert "nothing: it is not installed" in done.stdout
    assert "exit-code, exit status 3" in done.stdout
    machine.answer.write_text("")
    told = json.loads(symphony("service", "status", workflow, "--json").stdout)
    assert (told["active"], told["main_pid"], told["since"], told["installed"]) == (
        "unknown",
        None,
        None,
        False,
    )


@pytest.mark.parametrize("does", ["echo 'no bus' >&2; exit 1", "exit 3"])
def test_a_systemd_that_does_not_answer_is_told(machine: Machine, workflow: Path, does: str) -> None:
    machine.program("systemctl", does)
    done = symphony("service", "status", workflow)
    assert (done.exit_code, "error: systemd does not answer: " in done.stderr) == (1, True)
