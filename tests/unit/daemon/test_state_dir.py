import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.small_files import files_of_at_most
from symphony.daemon.instance_lock import LockHolder, StateDirectoryError, hold_lock, parse_lock_holder
from symphony.daemon.state_dir import (
    KNOWN_FOLDER,
    TOKEN_VARIABLE,
    StateDirectory,
    instance_of,
    library_key,
    locate,
    operator_token,
    other_state_dirs,
    parse_known_state_dir,
    register_state_dir,
)
from symphony.domain import Blame, Category, SymphonyError
from symphony.processes.base import Identity

AGENT = Identity(boot_id="b", pid=7, started=1.5)
HOLD = """\
import sys
from pathlib import Path
from symphony.daemon.instance_lock import StateDirectoryError
from symphony.daemon.state_dir import StateDirectory
try:
    with StateDirectory(Path(sys.argv[1])).lock():
        print("held", flush=True)
        sys.stdin.read()
except StateDirectoryError as error:
    print(error.failure.category.value, error.failure.message, flush=True)
"""


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state")
    made.create()
    return made


def holder(state: StateDirectory) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- where it is ---


def test_our_own_variable_goes_before_the_service_manager_and_that_before_the_home(tmp_path: Path) -> None:
    workflow = tmp_path / "project" / "WORKFLOW.md"
    all_three = {"SYMPHONY_STATE_DIR": "/a", "STATE_DIRECTORY": "/b", "XDG_STATE_HOME": "/c"}
    assert locate(workflow, all_three) == Path("/a")
    del all_three["SYMPHONY_STATE_DIR"]
    assert locate(workflow, all_three) == Path("/b")
    del all_three["STATE_DIRECTORY"]
    found = locate(workflow, all_three)
    assert found.parent == Path("/c/symphony")
    assert found.name.startswith("project-")


def test_an_empty_variable_counts_as_absent(tmp_path: Path) -> None:
    empty = {"SYMPHONY_STATE_DIR": "", "STATE_DIRECTORY": "", "XDG_STATE_HOME": ""}
    assert locate(tmp_path / "WORKFLOW.md", empty) == locate(tmp_path / "WORKFLOW.md", {})
    assert locate(tmp_path / "WORKFLOW.md", {}).is_relative_to(Path("~/.local/state/symphony").expanduser())


def test_of_several_directories_of_a_service_manager_the_first_is_taken(tmp_path: Path) -> None:
    assert locate(tmp_path / "WORKFLOW.md", {"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}) == Path(
        "/var/lib/a"
    )


def test_a_relative_or_home_path_becomes_absolute(tmp_path: Path) -> None:
    assert locate(tmp_path / "W", {"SYMPHONY_STATE_DIR": "here"}) == Path.cwd() / "here"
    assert locate(tmp_path / "W", {"SYMPHONY_STATE_DIR": "~/there"}) == Path.home() / "there"


def test_two_workflows_of_equal_name_get_two_directories_and_a_symlink_gets_the_one_of_its_target(
    tmp_path: Path,
) -> None:
    for name in ("a/app", "b/app"):
        (tmp_path / name).mkdir(parents=True)
    one, two, link = tmp_path / "a/app/W.md", tmp_path / "b/app/W.md", tmp_path / "W.md"
    link.symlink_to(one)
    assert locate(one, {}) != locate(two, {})
    assert locate(link, {}) == locate(one, {})
    assert locate(one, {}).name.startswith("app-")


def test_a_directory_name_without_a_usable_letter_still_gives_a_name() -> None:
    assert locate(Path("/ü/W.md"), {}).name.startswith("workflow-")
    assert locate(Path("/W.md"), {}).name.startswith("workflow-")


def test_an_instance_is_named_by_the_real_place_whatever_is_in_it(tmp_path: Path) -> None:
    place, link = tmp_path / "state", tmp_path / "link"
    before = instance_of(place)
    place.mkdir()
    link.symlink_to(place)
    assert instance_of(place) == before == instance_of(link)
    assert instance_of(tmp_path / "other") != before


# --- making it ---


def test_it_is_private_and_making_it_twice_is_harmless(state: StateDirectory) -> None:
    state.create()
    parts = (state.path, state.logs, state.transcripts)
    assert [path.stat().st_mode & 0o777 for path in parts] == [0o700] * 3
    assert sorted(path.name for path in state.path.iterdir()) == ["logs", "transcripts"]


def test_a_place_that_cannot_be_made_is_told_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirectoryError) as told:
        StateDirectory(tmp_path / "file" / "state").create()
    failure = told.value.failure
    assert failure.category is Category.STATE_DIRECTORY
    assert str(tmp_path / "file" / "state") in failure.message
    assert "SYMPHONY_STATE_DIR" in (failure.hint or "")


@pytest.mark.parametrize(
    "name", ["", "logs", "transcripts", "homes", "instructions", "runs", "remote-runs", "evaluations"]
)
def test_a_file_in_the_place_of_a_directory_is_named_before_anything_starts(
    tmp_path: Path, name: str
) -> None:
    state = StateDirectory(tmp_path / "fresh")
    place = state.path / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("")
    with pytest.raises(StateDirectoryError) as told:
        state.create()
    assert told.value.failure.message.startswith(f"{place} ")
    assert (told.value.failure.hint or "").startswith("move it away")
    place.unlink()
    state.create()
    if name:
        place.mkdir(exist_ok=True)
        state.create()


# --- the lock ---


def test_a_second_process_is_refused_and_told_who_holds_it(state: StateDirectory) -> None:
    with state.lock(), holder(state) as second:
        said = first_line(second)
        second.communicate()
    who = f"another symphony (pid {os.getpid()})"
    where = f"with the state directory {state.path}"
    assert said == f"instance_locked {who} already serves this workflow, {where}"


def test_the_lock_of_a_killed_process_is_free(state: StateDirectory) -> None:
    with holder(state) as first:
        assert first_line(first) == "held"
        with pytest.raises(StateDirectoryError, match=str(first.pid)), state.lock():
            pass
        first.kill()
        first.communicate()
    with state.lock():
        held = parse_lock_holder((state.path / "lock").read_bytes())
        assert held == LockHolder(pid=os.getpid())
    assert (state.path / "lock").read_text() == "", "an end in order names nobody"


def test_a_start_that_is_refused_names_nobody_who_would_look_like_a_killed_daemon(
    state: StateDirectory,
) -> None:
    with pytest.raises(ZeroDivisionError), state.lock():
        raise ZeroDivisionError
    assert (state.path / "lock").read_text() == ""


def test_a_second_opening_in_the_same_process_is_refused_too(state: StateDirectory) -> None:
    with state.lock(), pytest.raises(StateDirectoryError), StateDirectory(state.path).lock():
        pass
    with state.lock():
        pass


def test_the_holder_says_who_it_is_and_what_it_serves(state: StateDirectory, tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.touch()
    link.symlink_to(real)
    with state.lock(link, identity=AGENT):
        held = parse_lock_holder((state.path / "lock").read_bytes())
        with pytest.raises(StateDirectoryError, match="already serves this workflow"), state.lock(real):
            pass
        with pytest.raises(StateDirectoryError) as told, state.lock(tmp_path / "other.md"):
            pass
    assert held == LockHolder(pid=os.getpid(), boot_id="b", started=1.5, workflow=str(real))
    failure = told.value.failure
    assert failure.category is Category.INSTANCE_LOCKED
    assert failure.message.endswith(f"serves {real} with the state directory {state.path}")
    assert "SYMPHONY_STATE_DIR" in (failure.hint or "")


@pytest.mark.parametrize("content", [b"", b'{"pid": 47', b"\0" * 90, b'{"pid": 4711}\n'])
def test_a_lock_file_without_a_holder_or_of_a_crash_is_taken_over(
    state: StateDirectory, content: bytes
) -> None:
    (state.path / "lock").write_bytes(content)
    with state.lock():
        assert parse_lock_holder((state.path / "lock").read_bytes()) == LockHolder(pid=os.getpid())


def test_a_full_disk_does_not_keep_a_daemon_from_its_lock(state: StateDirectory) -> None:
    with (
        files_of_at_most(0),
        state.lock(),
        pytest.raises(StateDirectoryError, match="pid unknown"),
        state.lock(),
    ):
        pass


@pytest.mark.parametrize(
    "content", [b"Dear diary\n", b"{}", b'{"a": 1}', b'{"pid":true}', b"-3", b"[1]", b"\xff", b"[" * 9_000]
)
def test_a_lock_file_of_somebody_else_is_refused_and_kept(state: StateDirectory, content: bytes) -> None:
    (state.path / "lock").write_bytes(content)
    with pytest.raises(StateDirectoryError, match="something else than symphony wrote it"), state.lock():
        pass
    assert (state.path / "lock").read_bytes() == content


def _a_directory(lock: Path) -> None:
    lock.mkdir()


def _a_link(lock: Path) -> None:
    (lock.parent / "precious").write_text("precious")
    lock.symlink_to(lock.parent / "precious")


def _a_pipe(lock: Path) -> None:
    os.mkfifo(lock)


@pytest.mark.parametrize("make", [_a_directory, _a_link, _a_pipe])
def test_what_is_no_file_is_refused_in_one_line_and_kept(
    state: StateDirectory, make: Callable[[Path], None]
) -> None:
    lock = state.path / "lock"
    make(lock)
    before = lock.lstat()
    with pytest.raises(StateDirectoryError, match="lock cannot be used: ") as told, state.lock():
        pass
    failure = told.value.failure
    assert failure.category is Category.STATE_DIRECTORY
    assert "\n" not in failure.line
    assert failure.hint is not None
    assert (lock.lstat().st_ino, lock.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert lock.is_symlink() is False or lock.read_text() == "precious"


def test_the_lock_file_of_another_user_is_refused(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state.path / "lock").touch()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(StateDirectoryError, match=f"belongs to another user \\(uid {uid}\\)"), state.lock():
        pass


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOLCK, "files in the state directory .* cannot be locked: No locks available"),
        (errno.EOPNOTSUPP, "cannot be locked"),
        (errno.EACCES, "lock cannot be used: Permission denied"),
    ],
)
def test_a_file_system_without_locks_is_told_in_one_line(
    state: StateDirectory, number: int, said: str
) -> None:
    def refuse(handle: int, operation: int) -> None:
        del handle, operation
        raise OSError(number, os.strerror(number))

    with (
        pytest.raises(StateDirectoryError, match=said) as told,
        hold_lock(state.path / "lock", LockHolder(pid=1), flock=refuse),
    ):
        pass
    assert "SYMPHONY_STATE_DIR" in (told.value.failure.hint or "")


# --- stderr logs ---


def test_the_log_of_a_run_that_said_nothing_is_dropped(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.create()
    state.stderr_log("silent").touch()
    state.stderr_log("talking").write_text("something")
    for run_id in ("silent", "talking", "never-there"):
        state.remove_empty_log(run_id)
    assert not state.stderr_log("silent").exists()
    assert state.stderr_log("talking").exists()


def test_a_library_knows_state_directories_of_one_name_apart() -> None:
    keys = {library_key(Path(place)) for place in ("/a/state", "/b/state", "/b/./state", "/b/c/../state")}
    assert len(keys) == 2
    assert all(key.startswith("state-") for key in keys)


GOOD = "0123456789abcdef"


@pytest.fixture
def state_dir(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state")
    directory.create()
    return directory


def refused(state_dir: StateDirectory, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SymphonyError) as error:
        operator_token(state_dir, environment or {})
    failure = error.value.failure
    assert (failure.category, failure.blame) == (Category.HTTP_SERVER, Blame.CONFIG)
    assert failure.hint
    return failure.message


def test_a_token_is_made_once_for_this_user_alone(state_dir: StateDirectory) -> None:
    token = operator_token(state_dir, {})
    path = state_dir.path / "operator.token"
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert operator_token(state_dir, {}) == token


def test_the_environment_wins_and_nothing_is_written(state_dir: StateDirectory) -> None:
    assert operator_token(state_dir, {TOKEN_VARIABLE: f" {GOOD}\n"}) == GOOD
    assert not (state_dir.path / "operator.token").exists()


@pytest.mark.parametrize("given", ["", "short", "a token with blanks in it", "ünicode-is-not-a-token"])
def test_what_protects_nothing_is_refused_and_not_shown(state_dir: StateDirectory, given: str) -> None:
    message = refused(state_dir, {TOKEN_VARIABLE: given})
    assert given == "" or given not in message


def test_a_file_that_others_can_read_is_refused(state_dir: StateDirectory) -> None:
    path = state_dir.path / "operator.token"
    path.write_text(GOOD)
    path.chmod(0o644)
    assert "others" in refused(state_dir)
    path.chmod(0o600)
    assert operator_token(state_dir, {}) == GOOD


def test_a_link_or_a_directory_in_its_place_is_refused(state_dir: StateDirectory, tmp_path: Path) -> None:
    path = state_dir.path / "operator.token"
    (tmp_path / "elsewhere").write_text(GOOD)
    path.symlink_to(tmp_path / "elsewhere")
    refused(state_dir)
    path.unlink()
    path.mkdir(mode=0o700)
    refused(state_dir)


def test_bytes_that_are_no_text_are_refused(state_dir: StateDirectory) -> None:
    path = state_dir.path / "operator.token"
    path.write_bytes(b"\xff" * 32)
    path.chmod(0o600)
    refused(state_dir)


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    assert "written" in refused(StateDirectory(tmp_path / "absent" / "state"))


def _known(home: Path) -> list[Path]:
    """The places that are remembered below this home."""
    files = (home / "symphony" / KNOWN_FOLDER).glob("*.json")
    return sorted(Path(json.loads(file.read_text())["state_dir"]) for file in files)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "home")}


def test_a_place_of_its_own_is_remembered_once(tmp_path: Path, environment: dict[str, str]) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    register_state_dir(place, environment)
    (file,) = (tmp_path / "home" / "symphony" / KNOWN_FOLDER).iterdir()
    before = file.stat().st_mtime_ns
    register_state_dir(place, environment)
    assert _known(tmp_path / "home") == [place]
    assert file.stat().st_mtime_ns == before


def test_the_places_of_other_daemons_are_those_of_services_and_the_registered_ones(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, place = tmp_path / "services" / "app", tmp_path / "elsewhere"
    for made in (service, place, tmp_path / "services" / "home"):
        made.mkdir(parents=True)
    (service / "lock").touch()
    homes = (tmp_path / "services", tmp_path / "none")
    monkeypatch.setattr("symphony.daemon.state_dir.SYSTEM_STATE_HOMES", homes)
    register_state_dir(place, environment)
    folder = tmp_path / "home" / "symphony" / KNOWN_FOLDER
    (folder / "a.json").write_text("[my notes]")
    (folder / "b.json").mkdir()
    assert set(other_state_dirs(environment)) == {service, place}
    assert set(other_state_dirs({"XDG_STATE_HOME": str(tmp_path / "no")})) == {service}


def test_a_place_that_is_found_by_listing_needs_no_word(tmp_path: Path, environment: dict[str, str]) -> None:
    register_state_dir(tmp_path / "home" / "symphony" / "app-0123456789ab", environment)
    register_state_dir(Path("/var/lib/symphony/app"), environment)
    assert _known(tmp_path / "home") == []


def test_what_is_gone_is_forgotten_and_what_is_not_ours_stays(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    gone, stays = tmp_path / "gone", tmp_path / "stays"
    gone.mkdir()
    stays.mkdir()
    register_state_dir(gone, environment)
    gone.rmdir()
    folder = tmp_path / "home" / "symphony" / KNOWN_FOLDER
    (folder / "mine.json").write_text("[my notes]")
    (folder / "folder.json").mkdir()
    register_state_dir(stays, environment)
    (folder / "folder.json").rmdir()
    assert (folder / "mine.json").read_text() == "[my notes]"
    (folder / "mine.json").unlink()
    assert _known(tmp_path / "home") == [stays]


def test_a_place_that_cannot_be_looked_at_stays_and_keeps_no_other_from_being_remembered(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "home" / "symphony" / KNOWN_FOLDER
    folder.mkdir(parents=True)
    unseen = "/" + "x" * 300  # no file system has such names, so the kernel refuses to look
    (folder / "unseen.json").write_text(json.dumps({"state_dir": unseen}))
    place = tmp_path / "elsewhere"
    place.mkdir()
    register_state_dir(place, environment)
    assert _known(tmp_path / "home") == sorted([Path(unseen), place])


def test_a_home_that_cannot_be_written_holds_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    register_state_dir(tmp_path / "state", {"XDG_STATE_HOME": str(tmp_path / "file")})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"7",
        b'{"state_dir": 7}',
        b'{"state_dir": "a"}',
        b'{"state_dir": "/a\\u0000"}',
        b"[" * 9_999,
    ],
)
def test_what_names_no_place_is_no_place(content: bytes) -> None:
    assert parse_known_state_dir(content) is None


def test_the_place_that_is_named() -> None:
    assert parse_known_state_dir(b'{"state_dir": "/var/x"}') == Path("/var/x")
