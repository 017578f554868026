"""Ages as people write them: `90m`, `12h`, `30d`, `4w`."""

import re
from typing import Final

_AGE: Final = re.compile(r"(\d{1,6})\s*([smhdw])", re.ASCII)
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def age_seconds(text: str) -> float | None:
    """The seconds of an age, or `None` if the text is none; `0` needs no unit."""
    text = text.strip().lower()
    if text == "0":
        return 0.0
    found = _AGE.fullmatch(text)
    return None if found is None else float(int(found[1]) * _UNITS_S[found[2]])
