"""The files that earlier versions wrote of live runs, and that a successor reads once."""

import json
from dataclasses import asdict

from symphony.runtime.state_dir import LiveRun, StateDirectory

__all__ = ["leave_run"]


def leave_run(state: StateDirectory, run: LiveRun) -> None:
    """Leave a run behind as an earlier version did."""
    state.runs.mkdir(exist_ok=True)
    (state.runs / f"{run.run_id}.json").write_text(json.dumps(asdict(run)), encoding="utf-8")
