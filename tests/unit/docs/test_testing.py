"""docs/testing.md: its examples run, its tables are complete."""

import re
from pathlib import Path

import pytest

from kit.simulator import INVARIANTS, PROFILES, Session
from kit.simulator.__main__ import main
from kit.simulator.rules import table

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("number", [n for n, text in enumerate(EXAMPLES) if "def test_" not in text])
def test_the_examples_run(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(EXAMPLES[number], f"docs/testing.md, example {number}", "exec"), {})  # noqa: S102 - our own page
    assert "Traceback" not in capsys.readouterr().out


def test_the_example_of_a_test_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p kit.pytest_plugin -p no:cacheprovider -p no:asyncio")
    (example,) = [text for text in EXAMPLES if "def test_" in text]
    pytester.makepyfile(example)
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_the_table_of_rules_is_the_one_of_the_code() -> None:
    shown = PAGE.split("<!-- invariants:begin -->\n")[1].split("<!-- invariants:end -->")[0]
    assert shown.strip() == table(INVARIANTS.values()), "write what `--invariants` prints into the page"


def test_every_profile_is_told() -> None:
    for profile in PROFILES.values():
        assert f"| `{profile.name}` | {profile.about} |" in PAGE


@pytest.mark.parametrize("option", [name for each in main.params for name in each.opts])
def test_every_option_is_told(option: str) -> None:
    assert f"`{option}" in PAGE


@pytest.mark.parametrize("name", ["--symphony-seed", "--symphony-schedules", "symphony_seed"])
def test_everything_of_the_plugin_is_told(name: str) -> None:
    assert name in PAGE


def test_every_kind_of_scripted_session_is_told() -> None:
    kinds = [name for name in vars(Session) if not name.startswith("_") and callable(getattr(Session, name))]
    assert kinds
    for kind in kinds:
        assert f"{kind}(" in PAGE, kind
