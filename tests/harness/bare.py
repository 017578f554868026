"""An environment in which nothing of the checkout is to be found, as on a machine that has never seen it."""

import os
from pathlib import Path

__all__ = ["bare_environment", "pip_settings"]

_DROPPED = ("VIRTUAL_ENV", "PYTHONPATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "MAKEFLAGS")


def bare_environment(place: Path) -> dict[str, str]:
    """Variables for a new user whose home is `<place>/home`."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in _DROPPED and not key.startswith("SYMPHONY_")
    }
    return {**kept, "HOME": str(place / "home")}


def pip_settings() -> dict[str, str]:
    """How the user's own pip finds packages, which would be looked for in the home that tests replace."""
    if "PIP_CONFIG_FILE" in os.environ:
        return {}
    home = Path(os.environ.get("HOME", "/"))
    candidates = (home / ".config" / "pip" / "pip.conf", home / ".pip" / "pip.conf")
    found = next((path for path in candidates if path.exists()), None)
    return {} if found is None else {"PIP_CONFIG_FILE": str(found)}
