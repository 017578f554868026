"""The measurement itself works; what it measures is for `python -m bench.skills`, on a quiet machine."""

import json

import pytest

from bench.skills.__main__ import main, table


def test_the_measurement_gives_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--sizes", "12", "--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (row,) = result["sizes"]
    assert row["skills"] == 12
    assert 0 < row["most_read"] <= 4_096, "a normal skill costs one read"
    assert all(value > 0 for value in row["ratios"].values())
    assert result["missing_directory_s"] > 0
    assert 0 < result["compose_50_modules_s"] < result["load_50_modules_s"]
    result["sizes"][0]["skills"] = 1_000
    assert "uncached_to_limit at most 20" in table(result)
