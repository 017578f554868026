import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from symphony.cli import main, service_facts, service_steps
from symphony.cli.service_facts import Places, look_around
from symphony.cli.service_unit import DEFAULT_PATH, Instance, drop_in, instance_name, workflow_of

ROOT = Path(__file__).parents[3]
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
        self.places = Places.of_system(root)
        self.places.booted.mkdir(parents=True)
        self.said = root / "said"
        self.answer = root / "answer"
        self.answer.write_text(SHOWN)
        self.programs = root / "programs"
        self.programs.mkdir()
        self.program(
            "systemctl",
            f'case "$*" in *show*) cat {self.answer};; --version) echo "systemd 252 (252)";; esac',
        )
        self.program("useradd", "")

    def program(self, name: str, does: str) -> None:
        file = self.programs / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.said}\n{does}\n')
        file.chmod(0o755)

    def asked(self) -> list[str]:
        """What its programs were called with since the last time."""
        lines = self.said.read_text().splitlines() if self.said.exists() else []
        self.said.unlink(missing_ok=True)
        return [line for line in lines if line != "systemctl --version"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "machine")
    monkeypatch.setattr(Places, "of_system", lambda: made.places)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(made.programs), prepend=":")
    monkeypatch.setattr(service_steps, "_exists", lambda _account: True)
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
        program=("/opt/symphony/bin/python", "-m", "symphony"),
        account="symphony",
        writable=(Path("/srv/app"),),
        readable=(Path("/opt/symphony"),),
    )
    return replace(made, **changes)


@pytest.mark.parametrize("name", ["symphony@.service", "user/symphony@.service"])
def test_the_unit_of_the_package_is_the_one_that_is_deployed(name: str) -> None:
    ours = service_steps.template(of_user="/" in name)
    assert ours == (ROOT / "deploy" / "systemd" / name).read_text(encoding="utf-8")
    assert ours.startswith("# Written by `symphony service install")


def test_the_file_of_an_instance_names_program_workflow_and_what_may_be_written() -> None:
    text = drop_in(instance())
    assert workflow_of(text) == "/srv/app/WORKFLOW.md"
    assert 'RequiresMountsFor="/srv/app"' in text
    assert "\nExecStart=\nExecStart=" in text
    assert (
        '"/opt/symphony/bin/python" "-m" "symphony" "run" "--log-format" "json" "/srv/app/WORKFLOW.md"'
        in text
    )
    assert "User=symphony" in text
    assert 'ReadWritePaths="/srv/app"' in text
    assert "ProtectHome" not in text
    assert "Restart" not in text


def test_what_lies_in_a_home_is_shown_and_the_rest_of_it_is_not() -> None:
    text = drop_in(
        instance(
            workflow=Path("/home/alice/app/WORKFLOW.md"),
            writable=(Path("/home/alice/app"),),
            readable=(Path("/home/alice/venv"), Path("/usr")),
        )
    )
    assert "ProtectHome=tmpfs" in text
    assert 'BindPaths="/home/alice/app"' in text
    assert 'BindReadOnlyPaths="/home/alice/venv"' in text
    assert text.count("BindReadOnlyPaths") == 1
    assert "ReadWritePaths" not in text


def test_a_workflow_in_a_home_is_read_there_where_nothing_of_it_is_written() -> None:
    text = drop_in(instance(workflow=Path("/home/alice/app/WORKFLOW.md"), writable=()))
    assert 'BindReadOnlyPaths="/home/alice/app"' in text


def test_a_service_of_a_person_has_their_rights() -> None:
    text = drop_in(instance(account=None, workflow=Path("/home/alice/app/WORKFLOW.md")))
    assert "User=" not in text
    assert "Bind" not in text


def test_words_that_mean_something_to_systemd_are_only_words() -> None:
    odd = Path('/srv/50%/$HOME "x" \\n')
    text = drop_in(instance(workflow=odd / "WORKFLOW.md", writable=(odd,), path=("/a b", "/c%d")))
    assert r'"/srv/50%%/$$HOME \"x\" \\n/WORKFLOW.md"' in text
    assert r'ReadWritePaths="/srv/50%%/$HOME \"x\" \\n"' in text
    assert 'Environment="PATH=/a b:/c%%d"' in text
    assert workflow_of(text) == str(odd / "WORKFLOW.md")


@pytest.mark.parametrize(
    "changes", [{"workflow": Path("/srv/a\nb/W.md")}, {"writable": (Path("/home/a:b"),)}]
)
def test_a_path_that_no_unit_file_can_hold_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        drop_in(instance(**changes))


def test_restarts_wait_longer_and_longer_where_systemd_knows_how() -> None:
    assert "RestartSteps=" in drop_in(instance(systemd=254))
    assert "RestartSteps=" not in drop_in(instance(systemd=252))


def test_a_file_of_others_serves_no_workflow_of_ours() -> None:
    assert workflow_of("[Service]\n# workflow: /x\n") is None
    assert workflow_of(service_steps.template(of_user=False)) is None


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("app", "app"),
        ("my-app.2", "my-app.2"),
        ("my app!", "my-app"),
        ("a/b", "a-b"),
        ("ünï", "n"),
        ("...", "repository"),
        ("x" * 80, "x" * 64),
    ],
)
def test_an_instance_is_called_like_its_directory_in_letters_that_need_no_escape(
    directory: str, name: str
) -> None:
    assert instance_name(directory) == name


# --- installing ------------------------------------------------------------------------------------------


def test_it_writes_the_unit_enables_it_and_says_what_is_left_to_do(machine: Machine, workflow: Path) -> None:
    done = install(workflow)
    assert done.exit_code == 0, done.output
    assert machine.places.template.read_text() == service_steps.template(of_user=False)
    assert workflow_of(machine.places.drop_in("my-app").read_text()) == str(workflow)
    assert machine.places.credentials("my-app").stat().st_mode & 0o777 == 0o700
    assert machine.asked() == ["systemctl daemon-reload", "systemctl enable symphony@my-app.service"]
    assert f"the service runs as symphony: chown -R symphony: {workflow.parent}" in done.stdout
    assert "Then: systemctl start symphony@my-app.service" in done.stdout


def test_again_it_changes_nothing_and_after_a_change_what_differs(machine: Machine, workflow: Path) -> None:
    install(workflow)
    again = install(workflow)
    assert [line.split()[0] for line in again.stdout.splitlines()[:3]] == ["unchanged"] * 3
    machine.places.template.write_text("# Written by `symphony service install`, long ago\n")
    assert "rewritten     " + str(machine.places.template) in install(workflow, "--now").stdout
    assert machine.asked()[-1] == "systemctl enable --now symphony@my-app.service"


def test_a_dry_run_shows_all_of_it_and_touches_nothing(
    machine: Machine, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine.places.booted.rmdir()
    done = install(workflow, "--dry-run")
    assert done.exit_code == 0, done.output
    assert f"would write   {machine.places.template}" in done.stdout
    assert "    WatchdogSec=60" in done.stdout
    assert f"would create  {machine.places.credentials('my-app')}" in done.stdout
    assert "would run     systemctl enable symphony@my-app.service" in done.stdout
    assert not machine.places.units.exists()
    assert machine.asked() == []


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
    place = machine.places.credentials("app")
    assert f"Put each secret into a file of its name in {place}: MY_TOKEN" in done.stdout
    assert "Then: systemctl restart symphony@app.service" in done.stdout
    assert "ReadWritePaths" not in machine.places.drop_in("app").read_text()
    (place / "MY_TOKEN").write_text("x")
    assert "Put each secret" not in install(workflow, "--now").stdout
    write_workflow(tmp_path / "app", front % "")
    assert "GITHUB_TOKEN" in install(workflow).stdout


@pytest.mark.usefixtures("machine")
def test_a_name_that_is_taken_by_another_repository_is_refused(workflow: Path, tmp_path: Path) -> None:
    install(workflow)
    other = write_workflow(tmp_path / "other", "tracker: {kind: markdown}")
    done = install(other, "--name", "my-app")
    assert done.exit_code == 1
    assert f"error: a service of this name serves {workflow} already\n" in done.stderr
    assert install(other).exit_code == 0


def test_files_that_somebody_else_wrote_stay(machine: Machine, workflow: Path) -> None:
    machine.places.units.mkdir(parents=True)
    machine.places.template.write_text("[Service]\n")
    done = install(workflow)
    assert done.exit_code == 1
    assert "symphony did not write it" in done.stderr
    symphony("service", "uninstall", workflow)
    assert machine.places.template.read_text() == "[Service]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--name", "a b"), 2, "no service can be called 'a b'"),
        (("--name", "-x"), 2, ""),
        (("--user", "--as", "bob"), 2, "--as is of services of the machine"),
        (("--as", "nobody-here"), 1, "there is no user nobody-here"),
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
    monkeypatch.setattr(service_steps, "_exists", lambda _account: False)
    done = install(workflow, *arguments)
    assert (done.exit_code, told in done.stderr) == (code, True)
    assert machine.asked() == []


@pytest.mark.parametrize("account", ["symphony", "symphony-app"])
def test_the_dedicated_user_is_made_where_it_is_missing(
    machine: Machine, workflow: Path, monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    monkeypatch.setattr(service_steps, "_exists", lambda _account: False)
    assert install(workflow, "--as", account).exit_code == 0
    assert machine.asked()[0].startswith("useradd --system ")
    assert machine.asked() == []
    assert f"User={account}\n" in machine.places.drop_in("my-app").read_text()


def test_whether_a_user_is_there_is_looked_up() -> None:
    made = service_steps.installing(instance(account="root"), Places.of_system(Path("/nowhere")), start=False)
    assert not any("useradd" in str(step) for step in made)


def test_only_root_may_and_only_where_systemd_runs(
    machine: Machine, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = install(workflow)
    assert (done.exit_code, "only root" in done.stderr) == (1, True)
    machine.places.booted.rmdir()
    for command in ("install", "status", "uninstall"):
        refused = symphony("service", command, workflow)
        assert (refused.exit_code, refused.stderr.splitlines()[0]) == (1, "error: systemd does not run here")
        assert refused.stderr.splitlines()[1].startswith("hint: ")


def test_a_workflow_that_is_not_valid_is_refused_before_anything_is_written(
    machine: Machine, tmp_path: Path
) -> None:
    done = install(write_workflow(tmp_path / "app", "tracker: {kind: nothing}"))
    assert done.exit_code == 3
    assert not machine.places.units.exists()
    assert install(tmp_path / "none.md").exit_code == 3


def test_a_command_that_fails_is_told_with_its_words(machine: Machine, workflow: Path) -> None:
    machine.program("systemctl", "echo 'no bus' >&2; exit 1")
    done = install(workflow)
    assert done.exit_code == 1
    assert "error: systemctl daemon-reload: no bus\n" in done.stderr


def test_a_place_that_cannot_be_written_is_told(machine: Machine, workflow: Path) -> None:
    machine.places.units.parent.mkdir(parents=True)
    machine.places.units.write_text("a file")
    done = install(workflow)
    assert (done.exit_code, "cannot be changed: " in done.stderr) == (1, True)


def test_a_program_that_is_missing_is_named(
    machine: Machine, workflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_steps, "_exists", lambda _account: False)
    (machine.programs / "useradd").unlink()
    monkeypatch.setenv("PATH", str(machine.programs))
    done = install(workflow)
    assert (done.exit_code, "error: useradd is not installed\n" in done.stderr) == (1, True)


# --- what it finds ---------------------------------------------------------------------------------------


def found(workflow: Path, places: Places, **environment: str) -> service_facts.Found:
    return look_around(
        workflow,
        name="app",
        places=places,
        account=None,
        environment={"PATH": "/usr/bin:/bin", **environment},
        systemd=None,
    )


def test_a_local_repository_and_workspaces_elsewhere_may_be_written(tmp_path: Path) -> None:
    places = Places.of_system()
    front = f"tracker: {{kind: markdown}}\nworkspace: {{root: {{root}}, repo: {tmp_path}/other}}"
    file = write_workflow(tmp_path / "app", front.replace("{root}", "~/w"))
    assert found(file, places).instance.writable == (file.parent, tmp_path / "other")
    file = write_workflow(tmp_path / "app", front.replace("{root}", "/data/w"))
    assert found(file, places).instance.writable[-1] == Path("/data/w")
    assert any("/data/w is not there yet" in note for note in found(file, places).notes)
    file = write_workflow(tmp_path / "app", front.replace("{root}", "/tmp/w"))
    assert len(found(file, places).instance.writable) == 2


def test_an_agent_elsewhere_is_found_by_its_directory_and_told_of_where_a_home_hides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "codex").touch(0o755)
    file = write_workflow(tmp_path / "app", "tracker: {kind: markdown}\nworkspace: {root: ~/w}")
    made = found(file, Places.of_system(), PATH=f"{tools}:/usr/bin")
    assert made.instance.path == (*DEFAULT_PATH, str(tools))
    assert not any("lies in a home" in note for note in made.notes)
    monkeypatch.setattr(service_facts, "is_homely", lambda path: path.is_relative_to(tools))
    made = found(file, Places.of_system(), PATH=f"{tools}:/usr/bin")
    assert any(f"The agent {tools}/codex lies in a home" in note for note in made.notes)


def test_files_of_users_who_are_gone_have_an_owner_too(tmp_path: Path) -> None:
    file = write_workflow(tmp_path / "app", "tracker: {kind: markdown}\nworkspace: {root: ~/w}")
    if os.geteuid() == 0:
        os.chown(file.parent, 54_321, -1)
        assert any("belongs to uid 54321" in note for note in found(file, Places.of_system()).notes)


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
    assert "loginctl enable-linger" in done.stdout
    assert "journalctl --user -u symphony@my-app.service -f" in done.stdout


# --- taking it away, and looking at it -------------------------------------------------------------------


def test_what_was_installed_goes_again_but_not_the_secrets(
    machine: Machine, workflow: Path, tmp_path: Path
) -> None:
    other = write_workflow(tmp_path / "other", "tracker: {kind: markdown}\nworkspace: {root: ~/w}")
    install(workflow)
    install(other)
    machine.asked()
    assert (
        symphony("service", "uninstall", workflow, "--dry-run")
        .stdout.splitlines()[1]
        .startswith("would remove")
    )
    first = symphony("service", "uninstall", workflow)
    assert first.exit_code == 0, first.output
    assert machine.asked() == [
        "systemctl disable --now symphony@my-app.service",
        "systemctl daemon-reload",
        "systemctl reset-failed symphony@my-app.service",
    ]
    assert machine.places.template.exists()
    assert not machine.places.drop_in("my-app").parent.exists()
    assert machine.places.credentials("my-app").exists()
    beside = machine.places.drop_in("other").with_name("mine.conf")
    beside.touch()
    symphony("service", "uninstall", other)
    assert not machine.places.template.exists()
    assert beside.exists()
    assert "not there" in symphony("service", "uninstall", other).stdout


def test_uninstalling_goes_on_where_there_is_nothing_to_stop(machine: Machine, workflow: Path) -> None:
    machine.program("systemctl", 'case "$1" in disable|reset-failed) exit 1;; esac')
    done = symphony("service", "uninstall", workflow)
    assert (done.exit_code, done.stdout.count("not needed")) == (0, 2)


@pytest.mark.usefixtures("machine")
def test_the_state_of_a_service_is_told_for_people_and_programs(workflow: Path) -> None:
    install(workflow)
    done = symphony("service", "status", workflow)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "symphony@my-app.service  active (running)"
    assert "1 running, 0 retrying, 0 blocked" in done.stdout
    assert "ended" not in done.stdout
    told = json.loads(symphony("service", "status", workflow, "--json").stdout)
    schema = ROOT / "docs" / "schemas" / "service-status.schema.json"
    jsonschema.validate(told, json.loads(schema.read_text(encoding="utf-8")))
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
    assert install(workflow, "--dry-run").exit_code == 0, "its version is not known then"


def test_a_version_that_cannot_be_read_is_none(machine: Machine, workflow: Path) -> None:
    machine.program("systemctl", "echo something else")
    assert install(workflow, "--dry-run").exit_code == 0
