"""A known secret is shown nowhere: in no usual notation, over no line break, in no part where it is cut.

Masking finds it in the notations that programs write, and what is left of it where somebody has cut already.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import string
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest

from attack.conftest import Rounds
from harness.shell import word
from symphony.agents.events import redact
from symphony.agents.process import AgentProcess, Launch
from symphony.config import HooksSettings, WorkspaceSettings
from symphony.domain import MASK, Blame, Category, Failure, Issue, Redaction, one_line
from symphony.http import plain_message
from symphony.processes.local import LocalHost
from symphony.workspaces import Git, GitError, WorkspaceError, WorkspaceManager

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from attack.conftest import Rounds

SECRET = "Zx9/qL+7'w&\"Rt=4e<Kd>2b$Vn%8m" + "JhGfDsAq" * 2
PIECE = 8
HALF_ESCAPE = 7
KEY = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        *(base64.b64encode(bytes(range(start, start + 48))).decode() for start in range(0, 192, 48)),
        "c2hvcnQgZW5kIQ==",
        "-----END PRIVATE KEY-----",
        "",
    ]
)
ISSUE = Issue(id="1", identifier="MT-1", title="A title", state="Todo", dispatchable=True)

NOTATIONS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "percent, lower case": lambda text: re.sub(r"%..", lambda it: it[0].lower(), quote(text)),
    "percent, every character": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "form": quote_plus,
    "twice percent": lambda text: quote(quote(text, safe="")),
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json, every character": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "json with escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "html": html.escape,
    "html, by numbers": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "html, by hex numbers": lambda text: "".join(f"&#x{ord(letter):x};" for letter in text),
    "python": repr,
    "shell": shlex.quote,
    "shell, the other way": lambda text: "'" + text.replace("'", "'\\''") + "'",
    "shell, by backslashes": lambda text: re.sub(r"(\W)", r"\\\1", text),
    "json of a shell's": lambda text: json.dumps(shlex.quote(text)),
    "hex": lambda text: text.encode().hex(),
    "hex, upper case": lambda text: text.encode().hex().upper(),
    "hex escapes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64, one byte before": lambda text: base64.b64encode(b"u" + text.encode()).decode(),
    "base64, a user before and more behind": lambda text: base64.b64encode(f"me:{text}\nx".encode()).decode(),
    "base64 in an address": lambda text: quote(base64.b64encode(text.encode()).decode(), safe=""),
    "base64 in lines": lambda text: base64.encodebytes(text.encode() * 2).decode(),
    "with joiners between": "\u2060".join,
    "wrapped": lambda text: "\n   ".join(text[at : at + 10] for at in range(0, len(text), 10)),
}


def pieces(text: str, size: int = PIECE) -> set[str]:
    """All parts of a text of that size."""
    return {text[at : at + size] for at in range(len(text) - size + 1)}


def shows(shown: str, secret: str, written: str) -> set[str]:
    """Which parts of a secret can be read, as it is, or as much of it as it was written."""
    size = -(-PIECE * len(written) // len(secret)) + HALF_ESCAPE
    return {piece for piece in pieces(secret) | pieces(written, max(size, PIECE)) if piece in shown}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_secret_is_masked_in_every_usual_notation(notation: str) -> None:
    written = NOTATIONS[notation](SECRET)
    redaction = Redaction([SECRET])
    for show in (redaction.text, redaction.verbatim, redaction.line):
        shown = show(f"it said {written} and went on")
        assert shows(shown, SECRET, written) == set()
        assert shown.startswith("it said ")
        assert shown.endswith(" and went on")
        assert MASK in shown


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("end", ["", "…", "...", "'", '" in the log', " (cut: the rest is elsewhere)"])
def test_no_part_is_shown_where_somebody_has_cut_before(notation: str, end: str) -> None:
    written = NOTATIONS[notation](SECRET)
    redaction = Redaction([SECRET])
    for at in range(len(written)):
        assert shows(redaction.text(f"failed: {written[:at]}{end}"), SECRET, written) == set(), at
        assert shows(redaction.text(f"…{written[at:]} and more"), SECRET, written) == set(), at


@pytest.mark.parametrize("joint", ["\n", "\r\n", " | ", "; ", "", "\\n", "\n    ", "\nremote: ", ", "])
def test_a_secret_of_several_lines_is_masked_however_its_lines_are_joined(joint: str) -> None:
    written = joint.join(KEY.splitlines())

    shown = Redaction([KEY]).text(f"{written} and more")

    assert (
        shows(shown, KEY, "") - pieces("-----BEGIN PRIVATE KEY-----") - pieces(KEY.splitlines()[-1]) == set()
    )


def test_some_lines_of_a_secret_are_masked_without_the_others() -> None:
    lines = KEY.splitlines()
    for line in lines[1:-1]:
        assert shows(Redaction([KEY]).text(f"line: {line}."), line, "") == set()


def test_ordinary_words_are_left_alone() -> None:
    text = (
        "the secret of 100 tokens: abcdef 'abcdefgh' c2VjcmV0 73656372 at https://example.org/a%20b/c/d/e/f?…"
    )
    secrets = [
        SECRET,
        KEY,
        "short",
        "12345",
        " a b c ",
        "https://example.com/of-a-hook/Zx9qL7wRt4",
        "\n\n\n\n\n\n\n",
    ]
    assert Redaction(secrets).verbatim(text) == text


@pytest.mark.parametrize("before", [2016, 2040, 2047, 2048, 100])
@pytest.mark.asyncio
async def test_what_a_hook_prints_is_masked_before_it_is_cut_and_joined(tmp_path: Path, before: int) -> None:
    printed = tmp_path / "printed"
    printed.write_text(f"{'x' * before}{SECRET} {KEY}")
    settings = WorkspaceSettings.model_validate({"root": tmp_path / "root"})
    manager = WorkspaceManager(
        LocalHost(),
        settings,
        HooksSettings(after_create=f"cat {printed}; exit 1"),
        {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        frozenset(),
        redaction=Redaction([SECRET, KEY]),
    )
    await manager.check_root()

    with pytest.raises(WorkspaceError) as caught:
        await manager.prepare(ISSUE, None)

    message = caught.value.failure.message
    assert shows(message, SECRET, KEY) == set()
    assert len(message) < 2_200
    assert "\n" not in message


@pytest.mark.parametrize("before", range(200, 300, 7))
@pytest.mark.asyncio
async def test_what_git_complains_of_is_masked_before_it_is_cut_and_joined(
    tmp_path: Path, before: int
) -> None:
    text = f"fatal: {'x' * before} {SECRET}\n{KEY}"
    (tmp_path / "git").write_text(f"#!/bin/sh\nprintf %s {shlex.quote(text)} >&2\nexit 1\n")
    (tmp_path / "git").chmod(0o755)
    git = Git(
        LocalHost(), {"PATH": f"{tmp_path}:/usr/bin:/bin"}, frozenset(), redaction=Redaction([SECRET, KEY])
    )

    with pytest.raises(GitError) as caught:
        await git.trusted("status")

    assert shows(str(caught.value), SECRET, KEY) == set()
    assert "xxx" in str(caught.value)


@pytest.mark.asyncio
@pytest.mark.parametrize("behind", [8_192 - 4, 8_192 - len(SECRET) // 2, 8_192 - len(SECRET) + 4, 7_000])
async def test_the_last_line_of_an_agent_begins_with_no_part_of_a_secret(tmp_path: Path, behind: int) -> None:
    log = tmp_path / "stderr"
    (tmp_path / "text").write_text(f"first\n{SECRET}{'y' * behind}")
    launch = Launch(
        command=f"cat {word(tmp_path / 'text')} >&2",
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        stderr_path=log,
    )
    process = await AgentProcess.start(LocalHost(), launch, grace_ms=2_000)
    await process.wait()

    line = await process.stderr_line()

    assert shows(Redaction([SECRET]).text(f"the agent ended: {line}; see there"), SECRET, "") == set()
    await process.stop(lambda _: None)


def cut_by_an_agent(text: str, random: Random) -> str:
    return redact(text, random.randrange(20, 400))


def cut_by_a_line(text: str, random: Random) -> str:
    return one_line(text, random.randrange(20, 400))


def cut_by_a_tracker(text: str, random: Random) -> str:
    return plain_message({"errors": ["x" * random.randrange(1_000), {"message": text}]})


def quoted(text: str, random: Random) -> str:
    return f"there is no {text[: random.randrange(len(text))]!r} here"


def joined(text: str, random: Random) -> str:
    return random.choice([" ", ""]).join(text.splitlines())


def in_json(text: str, _: Random) -> str:
    return json.dumps({"message": text})


def as_it_is(text: str, _: Random) -> str:
    return text


ON_THE_WAY = [cut_by_an_agent, cut_by_a_line, cut_by_a_tracker, quoted, joined, in_json, as_it_is]
WORDS = [
    *(
        "the",
        "hook",
        "failed:",
        "100%",
        "a/b.py",
        "'quoted",
        'and "this"',
        "&amp;",
        "\\n",
        "it's",
        "e=mc2",
        "…",
    ),
    *("\n", "\r\n", "\t", "[31m", "über", "0x41", "x" * 40),
]


def random_secret(random: Random) -> str:
    letters = random.choice([string.ascii_letters + string.digits, string.ascii_letters + string.punctuation])
    lines = random.choice([1, 1, 1, 3])
    return "\n".join("".join(random.choices(letters, k=random.randrange(16, 70))) for _ in range(lines))


def test_no_text_shows_a_part_of_a_secret_whatever_becomes_of_it_on_its_way(rounds: Rounds) -> None:
    for random in rounds(20):
        secret = random_secret(random)
        redaction = Redaction([secret])
        for notation, write in NOTATIONS.items():
            written = write(secret)
            words = [random.choice(WORDS) for _ in range(random.randrange(12))]
            words.insert(random.randrange(len(words) + 1), written)
            text = " ".join(words)
            for _ in range(3):
                way = random.choice(ON_THE_WAY)
                show = random.choice([redaction.text, redaction.verbatim, redaction.line])
                failure = Failure(category=Category.INTERNAL, blame=Blame.HOST, message=way(text, random))
                for shown in (show(failure.message), redaction.failure(failure).message):
                    found = {piece for piece in pieces(secret) if piece in shown}
                    assert found == set(), (notation, way.__name__, show, failure.message)
