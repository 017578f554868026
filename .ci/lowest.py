"""Print constraints for pip: the lowest versions that pyproject.toml allows, and the usual ones of all else."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
FOLLOWS = ("opentelemetry", "protobuf", "googleapis")
"""What the lowest versions themselves decide about."""


def name_of(requirement: str) -> str:
    return re.split(r"[=<>\[]", requirement)[0].lower().replace("_", "-")


project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
lowest = [
    each.replace(">=", "==") for each in (*project["dependencies"], *project["optional-dependencies"]["otel"])
]
names = set(map(name_of, lowest))
for line in lowest:
    print(line)
for line in (HERE / "constraints.txt").read_text().splitlines():
    if line[:1] != "#" and name_of(line) not in names and not name_of(line).startswith(FOLLOWS):
        print(line)
