"""A change of 3,000 files and 50 MB: its page says what it leaves out, and the daemon stays small."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from harness.project import DEADLINE_S, Project

pytestmark = pytest.mark.slow
MAKE = """\
import os
os.mkdir("many")
for number in range(3_000):
    with open(f"many/{number}.txt", "w") as file:
        file.write(f"line of file {number}\\n" * 800)
with open("large.txt", "w") as file:
    file.write("x" * 79 + "\\n")
    file.write(("y" * 79 + "\\n") * 20_000)
with open("wide.txt", "w") as file:
    file.write(("z" * 200 + "\\n") * 5_210)
with open("picture.png", "wb") as file:
    file.write(bytes(range(256)))
"""
WORK: list[dict[str, Any]] = [
    {"write": "make.py", "text": MAKE},
    {"run": "python3 make.py && rm make.py"},
    {"commit": "Write a lot"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
PATH = "/issues/SYM-1/diff"
MAX_GROWTH_BYTES = 100_000_000
"""Of the daemon's memory; 19 MB were measured."""
MAX_PAGE_BYTES = 4_000_000
"""2.2 MB were measured, for 5,200 lines of one file."""


def test_the_page_of_a_large_change(tmp_path: Path) -> None:
    project = Project(root=tmp_path).create()
    project.workflow(agent={"skills": {"enabled": False}})
    project.issue("SYM-1", WORK)
    with project.daemon() as daemon:
        daemon.wait_for("work_ready", issue_identifier="SYM-1")
        process = psutil.Process(daemon.process.pid)
        control = json.loads((project.state_dir / "control.json").read_text())
        transport = httpx.HTTPTransport(uds=control["socket"], verify=False)
        with httpx.Client(transport=transport, base_url="http://symphony", timeout=DEADLINE_S) as browser:
            browser.get("/")
            before = process.memory_info().rss
            sizes = list[int]()

            def read(query: str = "") -> str:
                answer = browser.get(f"{PATH}{query}")
                assert answer.status_code == 200, answer.text
                sizes.append(len(answer.content))
                return answer.text

            first = read()
            assert "1 to 50 of 3,003" in first
            place = {
                name: int(number) for number, name in re.findall(r'id="file-(\d+)" aria-label="(.*?)"', first)
            }
            assert "binary or larger than 1 MiB" in first, "large.txt"
            assert "Show 800 changed lines" in first
            last = read("?part=61")
            assert "3,001 to 3,003 of 3,003" in last
            place |= {
                name: int(number) for number, name in re.findall(r'id="file-(\d+)" aria-label="(.*?)"', last)
            }
            assert "binary or larger than 1 MiB" in last, "picture.png"
            assert read(f"?file={place['many/0.txt']}").count("line of file 0<") == 800
            assert "More lines of it change" in read(f"?file={place['wide.txt']}")
            for part in range(2, 12):
                read(f"?part={part}")
            grown = process.memory_info().rss - before
    assert grown < MAX_GROWTH_BYTES
    assert max(sizes) < MAX_PAGE_BYTES
