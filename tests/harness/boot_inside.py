"""What happens in the booted Debian: the service is installed, started, hurt and stopped, and that is noted.

Runs as root in the container, by Debian's own Python, without this project's environment. Each observation is
one line of JSON, `[name, value]`, in the file of the first argument; the test outside judges them. Whatever
goes wrong is an observation as well, and the machine is switched off at the end.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

APP, UNIT = Path("/srv/app"), "symphony@app.service"
STATE = Path("/var/lib/symphony/app")
SECRET = "correct-horse-battery"
SYMPHONY = ("/opt/symphony/bin/python", "-m", "symphony")
AGENT = "/opt/symphony/bin/python -m symphony.testing.scripted_agent --threads ~/threads"
DEADLINE_S = 120.0
OBSERVED = Path(sys.argv[1] if len(sys.argv) > 1 else "/observed.jsonl")


def note(name: str, value: Any) -> None:
    with OBSERVED.open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, value]) + "\n")


def run(*argv: str, given: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, input=given or "", capture_output=True, text=True, check=False)


def must(*argv: str, given: str | None = None) -> str:
    done = run(*argv, given=given)
    if done.returncode != 0:
        raise RuntimeError(f"{argv}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def until(holds: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.05)
    raise RuntimeError(f"in vain: {what}: {shown(UNIT)}: {journal(UNIT)[-4000:]}")


def shown(unit: str) -> dict[str, str]:
    names = "ActiveState,SubState,Result,StatusText,MainPID,NRestarts,ExecMainStatus"
    return dict(
        line.split("=", 1) for line in must("systemctl", "show", unit, f"--property={names}").splitlines()
    )


def up_again(before: str = "0") -> dict[str, str] | None:
    """How the service is, once it is up as another process than `before`."""
    now = shown(UNIT)
    return now if now["ActiveState"] == "active" and now["MainPID"] not in {"0", before} else None


def journal(unit: str) -> str:
    return must("journalctl", "--no-pager", "-o", "cat", "-u", unit)


def of_user(name: str) -> list[str]:
    """The processes of a user, by their command."""
    uid = pwd.getpwnam(name).pw_uid
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == uid:
                found.append((place / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def issue(name: str, *steps: dict[str, Any]) -> None:
    script = f"```scripted\n{json.dumps([steps])}\n```\n"
    file = APP / ".symphony" / "issues" / f"{name}.md"
    fresh = file.with_suffix(".new")
    fresh.write_text(f"---\ntitle: {name}\nstate: Todo\n---\n{script}")
    must("chown", "symphony:", str(fresh))
    fresh.rename(file)


def state_of(name: str) -> str:
    text = (APP / ".symphony" / "issues" / f"{name}.md").read_text()
    return next(line.split(":")[1].strip() for line in text.splitlines() if line.startswith("state:"))


def branch(name: str) -> list[str]:
    """What was delivered of an issue, by the titles of its commits."""
    log = ("git", "-c", "safe.directory=*", "-C", str(APP), "log", "--format=%s", f"main..symphony/{name}")
    return run(*log).stdout.splitlines()


def work(name: str, *wait: dict[str, Any]) -> Sequence[dict[str, Any]]:
    done = {"tool": "board_move", "arguments": {"state": "Done"}}
    return ({"write": f"{name}.txt", "text": name}, {"commit": name}, *wait, done)


def by_root(command: str, workflow: str) -> None:
    """Carry out what `symphony service` prints for root."""
    must("sh", given=must(*SYMPHONY, "service", command, workflow))


def settle(directory: str, name: str, text: str) -> None:
    """A drop-in of somebody's own."""
    place = Path("/etc/systemd/system") / directory
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    must("systemctl", "daemon-reload")


# --- the chapters ----------------------------------------------------------------------------------------


def installed() -> None:
    (APP / ".symphony" / "issues").mkdir(parents=True)
    front = {
        "tracker": {"kind": "markdown"},
        "polling": {"interval_ms": 500},
        "workspace": {"root": "~/workspaces", "repo": "."},
        "agent": {"max_retry_backoff_ms": 100, "drain_timeout_ms": 3000},
        "codex": {"command": AGENT},
    }
    (APP / "WORKFLOW.md").write_text(f"---\n{json.dumps(front)}\n---\n{{{{ issue.description }}}}\n")
    (APP / ".gitignore").write_text("/.symphony/issues/\n/go-*\n/seen\n/tried\n")
    must("git", "init", "--quiet", "--initial-branch=main", str(APP))
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@localhost")
    must("git", "-C", str(APP), "add", "--all")
    must("git", "-C", str(APP), *identity, "commit", "--quiet", "-m", "Begin")
    must("useradd", "--system", "--home-dir", "/var/lib/symphony", "--shell", "/usr/sbin/nologin", "symphony")
    for _ in range(2):  # a second time changes nothing
        by_root("install", str(APP / "WORKFLOW.md"))
    must("chown", "-R", "symphony:", str(APP))
    secret = Path("/etc/symphony/app/credentials/DEMO_TOKEN")
    secret.write_text(SECRET + "\n")
    secret.chmod(0o600)
    settle("symphony@.service.d", "test.conf", "[Service]\nRestartSec=1\nTimeoutStopSec=2\n")


def started() -> None:
    must("systemctl", "start", UNIT)
    note("started", shown(UNIT))
    note("status", json.loads(must(*SYMPHONY, "service", "status", "--json", str(APP / "WORKFLOW.md"))))
    bwrap = "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-pid --unshare-net true"
    seen = "{ env; cat /proc/self/cgroup; } > /srv/app/seen"
    tries = "ls /home /root; ls -d /proc/1; touch /etc/mine /usr/mine /srv/mine"
    tried = f"{{ {tries}; }} > /srv/app/tried 2>&1 || true"
    issue("SYM-1", *work("SYM-1", {"run": seen}, {"run": tried}, {"run": bwrap}))
    until(lambda: state_of("SYM-1") == "Done", "the first issue is done")
    note("seen_by_agent", (APP / "seen").read_text())
    note("tried_by_agent", (APP / "tried").read_text())
    note("first_branch", until(lambda: branch("SYM-1"), "its work is delivered"))


def secrets() -> None:
    place = Path("/run/credentials") / UNIT
    note("credential", (place / "secrets_DEMO_TOKEN").read_text().strip())
    note(
        "credential_modes", [oct(one.stat().st_mode & 0o777) for one in (place, place / "secrets_DEMO_TOKEN")]
    )
    must("useradd", "--system", "stranger")
    for name, user, file in (
        ("stranger_reads", "stranger", place / "secrets_DEMO_TOKEN"),
        ("service_reads_source", "symphony", Path("/etc/symphony/app/credentials/DEMO_TOKEN")),
    ):
        note(name, run("setpriv", f"--reuid={user}", "--clear-groups", "cat", str(file)).returncode)
    pid = shown(UNIT)["MainPID"]
    exposed = must("systemctl", "show", UNIT) + Path(f"/proc/{pid}/environ").read_text() + journal(UNIT)
    note("secret_elsewhere", SECRET in exposed)


def reloaded() -> None:
    text = (APP / "WORKFLOW.md").read_text()
    (APP / "WORKFLOW.md").write_text(text.replace('"interval_ms": 500', '"interval_ms": 400'))
    note("reload", run("systemctl", "reload", UNIT).returncode)
    until(lambda: '"reload_asked"' in journal(UNIT) and '"workflow_reloaded"' in journal(UNIT), "it reloads")
    note("after_reload", until(up_again, "it is up"))


def second() -> None:
    environment = ("env", f"HOME={STATE}/home", f"SYMPHONY_STATE_DIR={STATE}")
    who = ("setpriv", "--reuid=symphony", "--regid=symphony", "--clear-groups")
    done = run(*who, *environment, *SYMPHONY, "run", "--log-format", "json", str(APP / "WORKFLOW.md"))
    note("second", [done.returncode, done.stderr])


def killed() -> None:
    issue(
        "SYM-2",
        *work("SYM-2", {"run": "setsid sleep 4711 >/dev/null 2>&1 & true"}, {"wait_for": "/srv/app/go-2"}),
    )
    until(lambda: any("sleep 4711" in one for one in of_user("symphony")), "the agent is at work")
    runs = Path("/sys/fs/cgroup/system.slice").glob(f"*/{UNIT}/symphony-*/*/cgroup.procs")
    note("groups", [len(one.read_text().split()) for one in runs])
    before = shown(UNIT)["MainPID"]
    must("systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT)
    after = until(lambda: up_again(before), "it is back")
    note("after_kill", after)
    agents = [one for one in of_user("symphony") if "sleep 4711" in one]
    note("sleepers_after_kill", len(agents))
    (APP / "go-2").touch()
    until(lambda: state_of("SYM-2") == "Done", "the issue of the killed daemon is done")
    note("second_branch", until(lambda: branch("SYM-2"), "its work is delivered"))


def hung() -> None:
    command = "/opt/symphony/bin/python -m harness.hanging_daemon"
    text = f"ExecStart=\nExecStart={command} {STATE}/home/hang run --log-format json /srv/app/WORKFLOW.md\n"
    settle(
        f"{UNIT}.d",
        "zz-hang.conf",
        f"[Service]\nWatchdogSec=10\n{text}Environment=PYTHONPATH=/opt/symphony/tests\n",
    )
    must("systemctl", "restart", UNIT)
    before = shown(UNIT)["MainPID"]
    must("setpriv", "--reuid=symphony", "--regid=symphony", "--clear-groups", "touch", f"{STATE}/home/hang")
    until(lambda: "Watchdog timeout" in journal(UNIT), "the watchdog notices")
    after = until(lambda: up_again(before), "it is back")
    note("after_hang", after)
    note("hung_where", "in hanging_step" in journal(UNIT))


def stopped() -> None:
    Path(f"/etc/systemd/system/{UNIT}.d/zz-hang.conf").unlink()
    must("systemctl", "daemon-reload")
    must("systemctl", "restart", UNIT)
    issue(
        "SYM-3",
        *work("SYM-3", {"run": "setsid sleep 4712 >/dev/null 2>&1 & true"}, {"wait_for": "/srv/app/go-3"}),
    )
    issue("SYM-4", *work("SYM-4", {"wait_for": "/srv/app/never"}))
    until(lambda: shown(UNIT)["StatusText"].startswith("2 running"), "two are at work")
    until(lambda: any("sleep 4712" in one for one in of_user("symphony")), "the agent is at work")
    must("systemctl", "stop", "--no-block", UNIT)
    draining = until(lambda: "draining" in shown(UNIT)["StatusText"] and shown(UNIT), "it drains")
    note("draining", draining)
    (APP / "go-3").touch()
    until(lambda: shown(UNIT)["ActiveState"] in {"inactive", "failed"}, "it has stopped")
    note("stopped", shown(UNIT))
    note(
        "cut_off",
        [line for line in journal(UNIT).splitlines() if '"run_stopping"' in line and "SYM-4" in line],
    )
    note("states", [state_of("SYM-3"), state_of("SYM-4")])
    note("left", of_user("symphony"))


def refused() -> None:
    """Starts that cannot do: no token, and a state directory that is read-only."""
    for name, tracker in (("two", "github"), ("three", "markdown")):
        place = Path("/srv") / name
        place.mkdir()
        front: dict[str, dict[str, Any]] = {
            "tracker": {"kind": tracker, "active_states": ["open"], "terminal_states": ["closed"]},
            "workspace": {"root": "~/workspaces"},
            "codex": {"command": AGENT},
        }
        if tracker == "github":
            front["tracker"]["provider"] = {"repo": "some/thing"}
        (place / "WORKFLOW.md").write_text(f"---\n{json.dumps(front)}\n---\nx\n")
        by_root("install", str(place / "WORKFLOW.md"))
        must("chown", "-R", "symphony:", str(place))
    run("systemctl", "start", "symphony@two")
    note("no_token", [shown("symphony@two"), journal("symphony@two")])
    limit = "[Unit]\nStartLimitBurst=2\n[Service]\nReadOnlyPaths=/var/lib/symphony/three\n"
    settle("symphony@three.service.d", "limit.conf", limit)
    run("systemctl", "start", "--no-block", "symphony@three")
    until(lambda: shown("symphony@three")["ActiveState"] == "failed", "it gives up")
    note("read_only", [shown("symphony@three"), journal("symphony@three")])


def of_a_person() -> None:
    """A service of somebody's own, below their own systemd."""
    must("useradd", "--create-home", "alice")
    uid = pwd.getpwnam("alice").pw_uid
    must("loginctl", "enable-linger", "alice")
    until(lambda: Path(f"/run/user/{uid}/systemd/private").exists(), "alice has a systemd")
    home, runtime = "HOME=/home/alice", f"XDG_RUNTIME_DIR=/run/user/{uid}"
    alice = ("setpriv", "--reuid=alice", "--regid=alice", "--init-groups", "env", home, runtime)
    shutil.copytree(APP, "/home/alice/app", ignore=shutil.ignore_patterns("issues"))
    Path("/home/alice/app/.symphony/issues").mkdir(parents=True)
    secret = Path("/home/alice/.config/symphony/app/credentials/ALICE_TOKEN")
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    must("chown", "-R", "alice:", "/home/alice")
    file = "/home/alice/app/WORKFLOW.md"
    note("person_installed", must(*alice, *SYMPHONY, "service", "install", "--user", "--now", file))
    note("person_status", json.loads(must(*alice, *SYMPHONY, "service", "status", "--user", "--json", file)))
    found = list(Path(f"/run/user/{uid}").glob("credentials/*/*"))
    note("person_credentials", [[one.name, oct(one.stat().st_mode & 0o777)] for one in found])
    must(*alice, *SYMPHONY, "service", "uninstall", "--user", file)
    note("person_left", [one for one in of_user("alice") if "symphony" in one])


def uninstalled() -> None:
    for name in ("app", "two", "three"):
        by_root("uninstall", f"/srv/{name}/WORKFLOW.md")
    note("units_left", [str(one) for one in Path("/etc/systemd/system").glob("symphony@*.service")])
    note("secret_left", Path("/etc/symphony/app/credentials/DEMO_TOKEN").exists())


def main() -> None:
    try:
        for chapter in (
            installed,
            started,
            secrets,
            reloaded,
            second,
            killed,
            hung,
            stopped,
            refused,
            of_a_person,
            uninstalled,
        ):
            began = time.monotonic()
            chapter()
            note(f"chapter_{chapter.__name__}_s", round(time.monotonic() - began, 1))
    except Exception as error:  # noqa: BLE001 - it is told outside, where it fails the test
        note("failed", f"{error!r}\n{journal(UNIT)}")
    os.sync()
    run("systemctl", "poweroff", "--no-block")


if __name__ == "__main__":
    main()
