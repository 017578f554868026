"""Every case of the conformance list that concerns the library has a test of its own, by number."""

import re
from pathlib import Path

HERE = Path(__file__).parent
# Settings and their environment variable (10) belong to the workflow; the rest of these needs a daemon.
ELSEWHERE = {10, 73, 74, 75, 76, 77, 78, 81, 82, 83}
CASES = set(range(1, 85)) - ELSEWHERE
OF_COMMANDS = {82, 83}


def _numbers(directory: Path) -> set[int]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in directory.glob("test_*.py"))
    return {int(number) for number in re.findall(r"def test_case_(\d\d)_", text)}


def test_every_case_has_a_test_that_bears_its_number() -> None:
    assert _numbers(HERE) == CASES
    assert _numbers(HERE.parent / "cli" / "commands") == OF_COMMANDS
