"""An agent in real bubblewrap reads no secret of the operator's home and leaves nothing to obey later."""

import shlex
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from anyio import to_thread

from attack.conftest import Rounds
from harness.real import require_bubblewrap, require_home
from harness.sessions import SessionBench
from harness.shell import word
from symphony.agents.folders import CLAUDE_FOLDERS, CODEX_FOLDERS, claude_project, located
from symphony.agents.isolation import Isolation
from symphony.agents.secret_places import SECRET_PLACES, named_secrets, secret_paths

pytestmark = pytest.mark.asyncio
MARKER: Final = "hunter2-marker"
NAMES: Final = tuple(name for names in SECRET_PLACES.values() for name in names)
CREDENTIALS: Final = (
    f'[http]\n\textraHeader = "Authorization: Basic {MARKER}"\n',
    f'[http "https://a.example/"]\n\tcookieFile = /{MARKER}\n',
    f'[remote "origin"]\n\turl = https://u:{MARKER}@a.example/x\n',
    f'[url "https://{MARKER}@a.example/"]\n\tinsteadOf = x:\n',
    f"[credential]\n\thelper = !echo password={MARKER}\n",
    f"[alias]\n\tx = !echo {MARKER}\n",
    f"[unknown]\n\tkey = {MARKER}\n",
)
OBEYED: Final = (
    *("config.toml", "settings.json", "settings.local.json", "hooks.json", "AGENTS.md", "CLAUDE.md"),
    *("hooks", "commands", "skills", "plugins", "rules", "agents", "prompts", ".env"),
)


@pytest.fixture
def top() -> Iterator[Path]:
    """A directory that the sandbox does not make private anyway, as it does with /tmp and /var/tmp."""
    require_bubblewrap()
    with tempfile.TemporaryDirectory(prefix=".symphony-attack-", dir=require_home()) as place:
        yield Path(place)


def bench_in(top: Path) -> SessionBench:
    home = top / "home"
    home.mkdir(parents=True)
    return SessionBench.at(top, {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"})


async def inside(bench: SessionBench, isolation: Isolation, script: str) -> str:
    argv = ["bash", "-c", f"exec 2>&1; {script}"]
    wrapped = await to_thread.run_sync(partial(isolation.wrap, argv, cwd=bench.workspace))
    done = await bench.host.run(wrapped, cwd=bench.workspace, env=bench.environ, timeout_ms=60_000)
    return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def hiding_secrets(variables: dict[str, str]) -> Isolation:
    """As the daemon makes it of its variables."""
    home = Path(variables["HOME"])
    hidden = (*secret_paths(variables), *named_secrets(variables))
    return Isolation(hidden=hidden, configurations=(home / ".gitconfig",), home=home)


async def test_no_secret_of_the_home_is_read_and_what_work_needs_is(rounds: Rounds, top: Path) -> None:
    for number, random in enumerate(rounds(few=2)):
        bench = bench_in(top / str(number))
        home = Path(bench.environ["HOME"])
        place = home / random.choice(NAMES)
        write(place if random.random() < 0.5 else place / "some" / "file", MARKER)
        middle = "".join(random.choices("ABCXYZ_", k=random.randrange(9)))
        named = write(home / random.choice(["x", "deep/er/x", ".x"]), MARKER)
        variables = {**bench.environ, f"T{middle}{random.choice(['_FILE', 'FILE', '_file'])}": str(named)}
        config = random.choice([".gitconfig", "src/a/.git/config", "src/.git/modules/m/config"])
        git_config = write(home / config, random.choice(CREDENTIALS))
        if ".git/" in config:
            write(git_config.parents[2 if "modules" in config else 0] / "HEAD", "ref: refs/heads/main\n")
        harmless = write(home / "work" / "notes", "harmless")
        isolation = await to_thread.run_sync(hiding_secrets, variables)
        told = await inside(
            bench, isolation, f"grep -raF {MARKER} {word(home)}; cat {word(harmless)}; echo end"
        )
        assert MARKER not in told, (place, variables, config)
        assert told.endswith("harmlessend\n")


def plant(random: Random) -> str:
    """What a shell in an agent's folder does so that a later session obeys it."""
    name, other = random.sample(OBEYED, 2)
    quoted = shlex.quote(random.choice([name, f"{name}/{other}", f".{name}", f"{name}~"]))
    return random.choice(
        [
            f"mkdir -p $(dirname {quoted}); echo {MARKER} > {quoted}",
            f"echo {MARKER} > t; mv -fT t {name}",
            f"mv {name} old; mkdir -p {name}; echo {MARKER} > {name}/{other}",
            f"rm -rf {name}; ln -sfn / {name}; ln -sfn {MARKER} {other}",
            f'd="$PWD"; cd ..; mv "$d" old; mkdir -p "$d"; echo {MARKER} > "$d/{name}"',
            f"chmod 777 . {name}; echo {MARKER} >> {name}; echo {MARKER} > ../.{other}",
            f"ln {name} {other}-2; echo {MARKER} >> {other}-2",
        ]
    )


def tree_of(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            path.read_text() if path.is_file() and not path.is_symlink() else "",
        )
        for path in folder.rglob("*")
    }


async def test_nothing_planted_stays_and_login_and_threads_do(rounds: Rounds, top: Path) -> None:
    for number, random in enumerate(rounds(few=2)):
        bench = bench_in(top / str(number))
        home = Path(bench.environ["HOME"])
        folder, login, threads = random.choice(
            [
                (".codex", "auth.json", "sessions/2026"),
                (".claude", ".credentials.json", f"projects/{claude_project(bench.workspace)}"),
            ]
        )
        for name in (login, *(one for one in OBEYED[:6] if random.random() < 0.5), "skills/given/SKILL.md"):
            write(home / folder / name, "given\n")
        folders = tuple(located((*CODEX_FOLDERS, *CLAUDE_FOLDERS), bench.environ, bench.workspace))
        isolation = Isolation(folders=folders, home=home)
        await inside(bench, isolation, "true")  # makes the folders of threads
        before = tree_of(home)
        planted = "; ".join(f"( cd ~/{folder}; {plant(random)} )" for _ in range(random.randint(1, 3)))
        await inside(bench, isolation, planted)
        assert tree_of(home) == before, planted
        kept = f"cd ~/{folder}; echo new > {login}; mkdir -p {threads}; echo said > {threads}/t.jsonl"
        await inside(bench, isolation, kept)
        assert (home / folder / login).read_text() == "new\n"
        assert (home / folder / threads / "t.jsonl").read_text() == "said\n"
