"""What was said of thousands of random workflow files is still said, but for the wording."""

import json

import pytest

from harness.rings import mostly_slow
from unit.config.judgements import cases, facts, recorded

PARTS = 10


@pytest.mark.parametrize("part", mostly_slow(range(PARTS)))
def test_random_files_are_judged_as_they_were_when_recorded(part: int) -> None:
    different = []
    for case in recorded()[part::PARTS]:
        now = json.loads(json.dumps(facts(case["text"], case["environment"])))
        if now != case["facts"]:
            different.append((case["text"], case["environment"], case["facts"], now))
    assert not different[:3], f"{len(different)} files are judged otherwise"


def test_the_recorded_files_show_every_kind_of_judgement() -> None:
    said = [case["facts"] for case in recorded()]
    accepted = [one for one in said if one["accepted"]]
    codes = {told[0] for one in said for told in (*one["failures"], *one["warnings"])}
    assert len(said) > len(accepted) > len(said) / 5
    assert codes > {"invalid_workflow_config", "missing_tracker_kind", "unknown_key", "unset_variable"}
    assert {name for one in accepted for name in one["values"]} > {"agent.rules", "workspace.repo"}


def test_random_files_can_be_made_again() -> None:
    assert list(cases(7, 5)) == list(cases(7, 5))
