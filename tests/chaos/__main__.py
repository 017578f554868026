"""`python -m chaos`: storms for some time, each with its own seed; 1 as soon as something did not hold."""

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.storm import Storm

_ONE_STORM_S = 60.0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHAOS_S", "120")))
    parser.add_argument(
        "--seed", default=os.environ.get("SEED"), help="of the first storm; random unless given"
    )
    parser.add_argument("--kills", type=int, help="one storm of so many kills of processes")
    parser.add_argument("--issues", type=int, default=6, help="so many on the board (%(default)s)")
    parser.add_argument("--keep", type=Path, help="leave logs, board and journal in this directory")
    asked = parser.parse_args(arguments)
    deadline, number = time.monotonic() + asked.seconds, 0
    while (left_s := deadline - time.monotonic()) > 0:
        seed = asked.seed if asked.seed and number == 0 else secrets.token_hex(4)
        number += 1
        with tempfile.TemporaryDirectory(prefix="symphony-chaos-", ignore_cleanup_errors=True) as place:
            root = Path(place) if asked.keep is None else asked.keep / seed
            root.mkdir(parents=True, exist_ok=True)
            _say(f"storm {number}: seed {seed}")
            storm = Storm(root=root, seed=seed, say=_say, at_once=asked.issues, kills=asked.kills)
            storm.rage(min(left_s, _ONE_STORM_S) if asked.kills is None else left_s)
        _say("  " + ", ".join(f"{what} {count}" for what, count in sorted(storm.tally.items())))
        if storm.problems:
            _say(f"again: make chaos SEED={seed}")
            return 1
        if asked.kills is not None:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
