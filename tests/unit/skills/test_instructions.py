"""Instructions: the manifest, the composition of a phase, the chain of fallbacks, and hostile input."""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from symphony.skills import (
    EMBEDDED,
    EMBEDDED_SOURCE,
    INSTRUCTION_MEANINGS,
    DirectorySource,
    FilesSource,
    InstructionCode,
    InstructionOrigin,
    Loader,
    Manifest,
    Problem,
    Selector,
    SourceError,
    check_phases,
    closure_digest,
    instruction_problem,
)

MANIFEST = b"""\
version: "1"
skills:
  - {name: review, file: review.md, priority: 60, phases: [REVIEW, TEST]}
  - {name: style, file: style.md}
  - {name: b, file: b.md, priority: 10}
  - {name: a, file: a.md, priority: 10, phases: []}
"""
FILES: Mapping[str, bytes] = MappingProxyType(
    {
        "manifest.yaml": MANIFEST,
        "review.md": b"# Review\n\nRead it all.\n",
        "style.md": b"# Style\n",
        "a.md": b"\xef\xbb\xbf# A\r\nfirst\r\n",
        "b.md": b"\n# B\n\n",
    }
)


def load(files: Mapping[str, bytes], max_chars: int = 16_000, sha256: str | None = None) -> Selector:
    return Loader(FilesSource(files), max_chars=max_chars, sha256=sha256).load()


def codes(problems: tuple[Problem, ...]) -> list[tuple[str, int | None]]:
    return [(one.code, one.line) for one in problems]


def test_a_phase_gets_its_modules_in_the_order_of_priority_and_name() -> None:
    selector = load(FILES)
    assert selector.problems == ()
    assert selector.skill_names("TEST") == ("a", "b", "style", "review")
    assert selector.skill_names("review") == ("a", "b", "style", "review")
    assert selector.select_for_phase("IMPLEMENT") == "# A\nfirst\n\n# B\n\n# Style"
    assert selector.select_all() == "# A\nfirst\n\n# B\n\n# Style\n\n# Review\n\nRead it all."
    digests = [module.sha256 for module in selector.compose("IMPLEMENT").modules]
    assert digests == [hashlib.sha256(FILES[name]).hexdigest() for name in ("a.md", "b.md", "style.md")]


def test_modules_that_do_not_fit_are_dropped_from_the_end_and_named() -> None:
    whole = load(FILES).select_all()
    assert load(FILES, max_chars=len(whole)).compose(None).dropped == ()
    composed = load(FILES, max_chars=len(whole) - 1).compose("TEST")
    assert composed.dropped == ("review",)
    assert composed.text == "# A\nfirst\n\n# B\n\n# Style"
    nothing = load(FILES, max_chars=1).compose("TEST")
    assert (nothing.text, nothing.dropped) == (None, ("a", "b", "style", "review"))


def test_invisible_characters_and_terminal_commands_do_not_reach_an_agent() -> None:
    hidden = "x\u202e\u200b\x1b[2J\x00\U000e0041y\tz".encode()
    selector = load({**FILES, "a.md": hidden, "style.md": b"  \x00\n"})
    assert selector.select_for_phase("IMPLEMENT") == "x[2Jy\tz\n\n# B\n\n  "


@pytest.mark.parametrize(
    "hidden", ["\ufe0f", "\ufe00\ufe01", "\U000e0100", "\u200d", "\u180b", "\u034f", "\u3164"]
)
def test_selectors_and_joiners_that_no_writing_needs_do_not_reach_an_agent_either(hidden: str) -> None:
    selector = load({**FILES, "a.md": f"x{hidden}y \u26a0\ufe0f{hidden} \u0645\u200c\u062e".encode()})
    assert "xy \u26a0\ufe0f \u0645\u200c\u062e" in str(selector.select_for_phase("IMPLEMENT"))


def test_the_digest_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    listed = subprocess.run(
        ["sha256sum", *sorted(FILES)], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    digest = hashlib.sha256(listed).hexdigest()
    assert closure_digest(FILES) == digest
    assert load(FILES, sha256=digest).origin is InstructionOrigin.SOURCE
    refused = load(FILES, sha256="0" * 64)
    assert (refused.origin, codes(refused.problems)) == ("nothing", [("digest_mismatch", None)])


def test_the_embedded_modules_are_sound_and_short() -> None:
    selector = Loader(EMBEDDED_SOURCE).load()
    assert selector.problems == ()
    assert [module.name for module in selector.modules] == [
        "safety",
        "environment",
        "status_signals",
        "planning",
        "implement",
        "test",
        "pr_creation",
        "pr_review",
    ]
    assert {path.name for path in EMBEDDED.iterdir()} == set(selector.files)
    assert [module.name for module in selector.modules if module.text.count("\n") >= 60] == []
    assert selector.compose(None).dropped == ()
    assert selector.skill_names("REVIEW") == ("safety", "environment", "status_signals", "pr_review")


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (b"[: nonsense", [("invalid_manifest", 1)]),
        (b"\xff\xfe", [("invalid_manifest", 1)]),
        (b"[1, 2]\n", [("invalid_manifest", 1)]),
        (b"a: " + b"[" * 40_000, [("invalid_manifest", 1)]),
        (b"#" * 70_000, [("too_large", None)]),
        (b"a: &a [x]\nb: [*a, *a]\n", [("invalid_manifest", 2)]),
        (b"x: !!python/object/apply:os.system [false]\nversion: '1'\nskills: 5\n", None),
        (b"skills: []\n", [("unsupported_version", 1)]),
        (b'# v\nversion: "2"\nskills: []\n', [("unsupported_version", 2)]),
        (b"version: 1\nskills: []\n", [("invalid_manifest", 2)]),
        (b'version: "1"\n', [("invalid_manifest", 1)]),
    ],
)
def test_a_manifest_that_is_nonsense_has_one_problem(
    manifest: bytes, expected: list[tuple[str, int | None]] | None
) -> None:
    selector = load({**FILES, "manifest.yaml": manifest})
    assert selector.origin is InstructionOrigin.NOTHING
    assert selector.select_all() == ""
    found = codes(selector.problems)
    assert found == ([("unknown_key", 1), ("invalid_manifest", 3)] if expected is None else expected)
    assert all(problem.path == "manifest.yaml" and problem.hint for problem in selector.problems)


def test_every_bad_entry_is_reported_with_its_line() -> None:
    entries = [
        ("{name: a, file: a.md, priority: 1}", None),
        ("{name: A, file: b.md}", "duplicate_name"),
        ("{name: c, file: ../../etc/passwd}", "outside_directory"),
        ("{name: d, file: /etc/passwd}", "outside_directory"),
        ("{name: e, file: .git/config}", "outside_directory"),
        ("{name: f, file: a.md, priority: high}", "invalid_entry"),
        ("{name: g, file: a.md, phases: [[x]]}", "invalid_entry"),
        ('{name: h, file: a.md, phases: ["a b"]}', "invalid_entry"),
        ('{name: "a\\nb", file: a.md}', "invalid_entry"),
        ("{file: a.md}", "invalid_entry"),
        ("{name: k}", "invalid_entry"),
        ("text", "invalid_entry"),
        ("{name: m, file: a.md, prio: 1}", "unknown_key"),
        ("{name: n, file: a.md, priority: null, phases: 'TEST, REVIEW'}", None),
    ]
    text = 'version: "1"\nmore: x\nskills:\n' + "".join(f"  - {entry}\n" for entry, _ in entries)
    manifest = Manifest.parse(text.encode())
    expected = [(code, line) for line, (_, code) in enumerate(entries, start=4) if code is not None]
    assert codes(manifest.problems) == [("unknown_key", 2), *expected]
    assert [entry.name for entry in manifest.entries] == ["a", "m", "n"]
    assert manifest.entries[-1].phases == ("TEST", "REVIEW")
    assert manifest.files == ("a.md", "manifest.yaml")


def test_nothing_outside_of_the_workspace_and_nothing_that_blocks_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, secret = tmp_path / "workspace", tmp_path / "secret.md"
    directory = workspace / ".symphony" / "instructions"
    directory.mkdir(parents=True)
    secret.write_text("secret")
    (workspace / "shared.md").write_text("# Shared\n")
    (directory / "out.md").symlink_to(secret)
    (directory / "in.md").symlink_to(workspace / "shared.md")
    (directory / "dir.md").mkdir()
    (directory / "latin.md").write_bytes(b"caf\xe9")
    (directory / "big.md").write_bytes(b"x" * 10_000_000)
    os.mkfifo(directory / "fifo.md")
    monkeypatch.chdir(directory)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.md")
    source = DirectorySource(workspace, ".symphony/instructions")
    expected = {
        "out.md": "outside_directory",
        "dir.md": "not_regular_file",
        "fifo.md": "not_regular_file",
        "socket.md": "not_regular_file",
        "latin.md": "not_utf8",
        "big.md": "too_large",
        "gone.md": "missing_file",
        "latin.md/x": "missing_file",
    }
    for file, code in expected.items():
        manifest = f'version: "1"\nskills: [{{name: x, file: {file}}}, {{name: y, file: in.md}}]\n'
        (directory / "manifest.yaml").write_text(manifest)
        selector = Loader(source).load()
        (problem,) = selector.problems
        assert (problem.code, problem.path) == (code, f".symphony/instructions/{file}")
        assert (selector.origin, selector.select_all()) == ("nothing", "")
    (directory / "manifest.yaml").write_text('version: "1"\nskills: [{name: y, file: in.md}]\n')
    assert Loader(source).load().select_all() == "# Shared"
    (directory / "manifest.yaml").unlink()
    assert codes(Loader(source).load().problems) == [("missing_manifest", None)]
    assert codes(Loader(DirectorySource(workspace, "no/where")).load().problems) == [
        ("missing_manifest", None)
    ]
    (workspace / "link").symlink_to(tmp_path)
    assert codes(Loader(DirectorySource(workspace, "link")).load().problems) == [("outside_directory", None)]


@pytest.mark.parametrize(("count", "problems"), [(200, []), (201, [("too_large", 2)])])
def test_a_manifest_names_at_most_two_hundred_modules(count: int, problems: list[tuple[str, int]]) -> None:
    entries = ", ".join(f"{{name: m{number}, file: a.md}}" for number in range(count))
    manifest = f'version: "1"\nskills: [{entries}]'.encode()
    assert codes(load({**FILES, "manifest.yaml": manifest}).problems) == problems


@pytest.mark.parametrize(("count", "problems"), [(17, []), (18, [("too_large", None)])])
def test_many_modules_together_are_bounded(count: int, problems: list[tuple[str, None]]) -> None:
    entries = "".join(f"  - {{name: m{n}, file: {n}.md}}\n" for n in range(count))
    files = {f"{n}.md": b"x" * 60_000 for n in range(count)}  # 1 MiB is 17 of them and a half
    files["manifest.yaml"] = f'version: "1"\nskills:\n{entries}'.encode()
    assert codes(load(files).problems) == problems


def test_a_source_that_fails_is_replaced_by_the_last_good_copy_then_the_fallback_then_nothing(
    tmp_path: Path,
) -> None:
    down = instruction_problem(InstructionCode.UNAVAILABLE, "https://example.org/manifest.yaml")
    broken, good = FilesSource({"manifest.yaml": MANIFEST}), FilesSource(FILES)
    fallback = tmp_path / "rules.md"
    fallback.write_text("Be kind.\n")
    last_good = Loader(down, last_good=good, fallback=fallback).load()
    assert last_good.origin is InstructionOrigin.LAST_GOOD
    assert (codes(last_good.problems), last_good.skill_names("TEST")[0]) == ([("unavailable", None)], "a")
    monolith = Loader(broken, last_good=FilesSource({}), fallback=fallback).load()
    assert monolith.origin is InstructionOrigin.FALLBACK
    assert (monolith.select_for_phase("TEST"), monolith.skill_names("X")) == ("Be kind.", ("fallback",))
    assert [code for code, _ in codes(monolith.problems)] == [*["missing_file"] * 4, "missing_manifest"]
    fallback.unlink()
    os.mkfifo(fallback)
    nothing = Loader(down, fallback=fallback).load()
    assert nothing.origin is InstructionOrigin.NOTHING
    assert [code for code, _ in codes(nothing.problems)] == ["unavailable", "not_regular_file"]
    pinned = Loader(down, last_good=good, sha256="0" * 64).load()
    assert [code for code, _ in codes(pinned.problems)] == ["unavailable", "digest_mismatch"]


def test_two_entries_may_share_a_file() -> None:
    manifest = b'version: "1"\nskills: [{name: a, file: a.md}, {name: b, file: a.md, phases: [TEST]}]\n'
    found = load({"manifest.yaml": manifest, "a.md": b"# A\n"})
    assert (codes(found.problems), found.skill_names("TEST")) == ([], ("a", "b"))


def test_a_fallback_that_is_missing_or_cannot_be_opened_is_named(tmp_path: Path) -> None:
    down = instruction_problem(InstructionCode.UNAVAILABLE, "https://example.org/manifest.yaml")
    (tmp_path / "loop.md").symlink_to("loop.md")
    for name, code in (("none.md", "missing_file"), ("loop.md", "unreadable")):
        found = Loader(down, fallback=tmp_path / name).load()
        assert [one for one, _ in codes(found.problems)] == ["unavailable", code]


def test_a_source_that_is_a_directory_gives_no_file_above_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as refused:
        DirectorySource(tmp_path / "a").read("../b.md")
    assert refused.value.code is InstructionCode.OUTSIDE_DIRECTORY


def test_without_phases_of_issues_there_is_nothing_to_compare() -> None:
    assert tuple(check_phases(load(FILES), [], "manifest.yaml")) == ()


def test_phases_that_nobody_defines_and_phases_without_a_module_are_warnings() -> None:
    found = tuple(check_phases(load(FILES), ["review", "Implement"], "manifest.yaml"))
    assert codes(found) == [("unknown_phase", 3), ("unused_phase", None)]
    assert {problem.severity.value for problem in found} == {"warning"}


def test_an_entry_that_cannot_be_read_may_be_the_one_of_a_phase() -> None:
    manifest = b"modules:\n- {file: a.md, phases: [implement]}\n- {file: 7, phases: [review]}\n"
    selector = load({**FILES, "manifest.yaml": manifest})
    assert selector.manifest is not None
    assert selector.manifest.problems
    assert tuple(check_phases(selector, ["review", "implement"], "manifest.yaml")) == ()


def test_the_page_has_every_code_and_a_library_example_that_runs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "instructions.md").read_text(encoding="utf-8")
    table = page.split("<!-- codes:begin -->\n")[1].split("<!-- codes:end -->")[0]
    assert table.splitlines()[2:] == [
        f"| `{code.value}` | {severity.value} | {message} | {hint} |"
        for code, (severity, message, hint) in INSTRUCTION_MEANINGS.items()
    ]
    assert set(INSTRUCTION_MEANINGS) == set(InstructionCode)
    (tmp_path / "prompts").mkdir()
    shutil.copytree(EMBEDDED, tmp_path / "prompts" / "skills")
    code = page.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert b"('safety', 'environment', 'status_signals', 'test') ()" in done.stdout


def test_the_how_to_has_the_sizes_of_the_embedded_modules_as_they_are() -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "one-prompt-per-phase.md"
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| \d+ \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    selector = Loader(EMBEDDED_SOURCE).load()
    sizes = [len(selector.compose(None if " " in phase else phase).text or "") for phase, _ in rows]
    assert [int(size) for _, size in rows] == sizes
    assert {phase for module in selector.modules for phase in module.phases} < {phase for phase, _ in rows}
