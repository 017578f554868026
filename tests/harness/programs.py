"""Small programs in an interpreter of their own, for what is loaded into it."""

import subprocess
import sys

__all__ = ["printed"]


def printed(program: str) -> str:
    """What the program prints; fails where it does."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout
