"""How the program itself is called."""

import shlex
import shutil
import sys
from pathlib import Path

__all__ = ["program"]


def program() -> str:
    """How a person calls this program again: by its name, or by its path where PATH does not lead there."""
    called = Path(sys.argv[0])
    if shutil.which("symphony") is not None or called.name != "symphony":
        return "symphony"
    return shlex.quote(str(called.absolute()))
