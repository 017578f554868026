"""`python -m bench.skills [--json] [--sizes N,N] [--dir DIR]`, with src and tests on PYTHONPATH."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.skills.measure import build, composing_s, measure, missing_s

AIMS = (
    ("uncached_to_limit", 1_000, "at most", 20.0),
    ("common_to_uncached", 1_000, "at least", 6.0),
    ("libyaml_to_uncached", 1_000, "at least", 1.0),
    ("common_to_by_content", 1_000, "at least", 8.0),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.skills")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where the files are written")
    given = parser.parse_args(arguments)
    rows = []
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=given.dir) as place:
            shelf = build(Path(place), size)
            rows.append(measure(shelf, size, rounds=given.rounds))
    with tempfile.TemporaryDirectory() as place:
        missing = missing_s(Path(place))
        loading, composing = composing_s(Path(place))
    result = {
        "sizes": [{**asdict(row), "ratios": row.ratios()} for row in rows],
        "missing_directory_s": missing,
        "load_50_modules_s": loading,
        "compose_50_modules_s": composing,
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n" if given.json else table(result))
    return 0


def table(result: dict[str, Any]) -> str:
    """The figures for people, and how they stand to the aims."""
    lines = []
    for row in result["sizes"]:
        lines.append(f"{row['skills']} skills; one load in ms, and per skill in us")
        lines += [
            f"  {key[:-2]:<12} {row[key] * 1e3:9.2f} {row[key] * 1e6 / row['skills']:9.2f}"
            for key in (
                "limit_s",
                "uncached_s",
                "content_s",
                "common_s",
                "libyaml_s",
                "cold_limit_s",
                "cold_s",
            )
        ]
        lines += [f"  {key:<22} {value:7.2f}" for key, value in row["ratios"].items()]
        lines.append(f"  most bytes read of one file: {row['most_read']}")
    lines.append(f"missing directory: {result['missing_directory_s'] * 1e3:.3f} ms (aim: under 1)")
    lines.append(f"load 50 modules of instructions: {result['load_50_modules_s'] * 1e3:.3f} ms")
    composing = result["compose_50_modules_s"] * 1e3
    met = "met   " if composing <= 1 else "MISSED"
    lines.append(f"{met} compose 50 modules at most 1 ms: {composing:.3f} ms")
    ratios = {row["skills"]: row["ratios"] for row in result["sizes"]}
    for key, size, how, aim in AIMS:
        if size in ratios:
            value = ratios[size][key]
            met = value <= aim if how == "at most" else value >= aim
            lines.append(f"{'met   ' if met else 'MISSED'} {key} {how} {aim:g}: {value:.2f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
