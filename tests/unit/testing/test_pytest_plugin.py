import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from harness.programs import printed

pytest_plugins = ["pytester"]

PLUGIN = "symphony.testing.pytest_plugin"
KIT_PLUGIN = "kit.pytest_plugin"
ROOT = Path(__file__).parents[3]
FAILING = """
    from kit.simulator import Scenario, days

    def test_two_days(symphony_simulation):
        result = symphony_simulation(Scenario(issues=2), duration=days(0.01))
        assert result.statistics.starts < 0
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of somebody else, with the two plugins and no other: ours would be started anew for each."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p {PLUGIN} -p {KIT_PLUGIN} -p no:cacheprovider")
    return pytester


def test_it_is_offered_to_pytest_under_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert import_module(PLUGIN).symphony_scripted_agent


def test_loading_it_loads_nothing_else_of_symphony() -> None:
    program = (
        f"import sys, {PLUGIN}; "
        "print(sorted(name for name in sys.modules if name.split('.')[0] == 'symphony'))"
    )
    assert printed(program).strip() == f"['symphony', 'symphony.testing', '{PLUGIN}']"


def test_a_test_that_fails_shows_the_seed_and_both_ways_to_replay_it(inner: pytest.Pytester) -> None:
    inner.makepyfile(FAILING)
    found = inner.runpytest_inprocess("--symphony-seed", "4711")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "*symphony simulation*",
            "seed:   4711",
            "replay: pytest *test_two_days --symphony-seed 4711",
            "   or:  PYTHONPATH=tests python -m kit.simulator --seed 4711 *",
        ]
    )


def test_the_seed_comes_from_the_option_else_the_marker_else_the_name(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        import pytest
        from kit.simulator import Scenario, hours

        @pytest.mark.symphony_seed(7)
        def test_marked(symphony_simulation):
            print("marked", symphony_simulation.seed)

        def test_named(symphony_simulation):
            print("named", symphony_simulation.seed)
    """)
    first = inner.runpytest_inprocess("-s", "--strict-markers").outlines
    assert any("marked 7" in text for text in first)
    named = [text for text in first if "named" in text]
    assert named == [text for text in inner.runpytest_inprocess("-s").outlines if "named" in text]
    third = inner.runpytest_inprocess("-s", "--symphony-seed", "9").outlines
    assert any("marked 9" in text for text in third)
    assert any("named 9" in text for text in third)


def test_agents_and_model_servers_are_at_hand(inner: pytest.Pytester) -> None:
    inner.makepyfile("""
        from urllib.request import urlopen

        def test_agent(symphony_scripted_agent):
            assert symphony_scripted_agent("--ignore-eof").endswith("scripted_agent --ignore-eof")

        def test_server(symphony_model_server):
            with urlopen(symphony_model_server().base_url + "/models") as answer:
                assert answer.status == 200
    """)
    inner.runpytest_inprocess().assert_outcomes(passed=2)
