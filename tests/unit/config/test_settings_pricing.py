"""`pricing`: what models cost, and what becomes of entries that are no prices."""

from typing import TYPE_CHECKING

import pytest

from symphony.config import WarningCode

if TYPE_CHECKING:
    from unit.config.conftest import Parse

HEAD = "---\ntracker:\n  kind: memory\npricing:\n"
GOOD = "  good: {input: 1, output: 2.5}\n"


def test_a_price_or_a_list_of_dated_prices_is_read(parse: "Parse") -> None:
    first, second = "{input: 3, output: 15, cache_read: 0.3}", "{from: 2026-10-01, input: 2, output: 12}"
    dated = f"  gpt-*:\n    - {first}\n    - {second}\n"
    pricing = parse(f"{HEAD}{GOOD}{dated}---\n").settings.pricing
    assert [(price.input, price.output, price.since) for price in pricing["good"]] == [(1, 2.5, None)]
    old, new = pricing["gpt-*"]
    assert (old.cache_read, old.cache_write, new.since) == (0.3, None, "2026-10-01")


@pytest.mark.parametrize(
    ("entry", "line", "words"),
    [
        ("  m: {output: 1}\n", 6, "input is required"),
        ("  m: {input: -1, output: 1}\n", 6, "input must be 0"),
        ("  m: {input: .nan, output: 1}\n", 6, "input"),
        ("  m: {input: cheap, output: 1}\n", 6, "input must be a number"),
        ("  m: {input: true, output: 1}\n", 6, "input must be a number"),
        ("  m: {input: 1, output: 1, from: soon}\n", 6, "from must be a day"),
        ("  m: {input: 1, output: 1, from: 20261001}\n", 6, "from"),
        ("  m: 7\n", 6, "must be a map"),
        ("  m:\n    - {input: 1, output: 1}\n    - {input: 2, output: 2}\n", 8, "the same day"),
        ("  a*b: {input: 1, output: 1}\n", 6, "name of a model"),
    ],
)
def test_an_invalid_price_is_ignored_with_its_place_and_the_others_hold(
    parse: "Parse", entry: str, line: int, words: str
) -> None:
    workflow = parse(f"{HEAD}{GOOD}{entry}---\n")
    (warning,) = workflow.warnings
    assert warning.code is WarningCode.IGNORED_PRICE
    assert (warning.where or "").endswith(f":{line}")
    assert words in warning.message
    assert workflow.settings.pricing["good"]
    assert len(workflow.settings.pricing.get("m", ())) <= 1


def test_an_unknown_key_of_a_price_is_named_with_the_nearest_known_one(parse: "Parse") -> None:
    workflow = parse(f"{HEAD}  m: {{input: 1, output: 1, cache_reads: 1}}\n---\n")
    (warning,) = workflow.warnings
    assert (warning.code, "cache_read" in (warning.hint or "")) == (WarningCode.UNKNOWN_KEY, True)
    assert workflow.settings.pricing["m"]
