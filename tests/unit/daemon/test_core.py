"""What the parts of one daemon share."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from symphony.daemon.context import RuntimeContext
from symphony.daemon.core import Core
from symphony.daemon.state_dir import StateDirectory


def test_new_settings_are_in_force_when_the_parts_get_them(tmp_path: Path) -> None:
    def post(_: object) -> None: ...

    core = Core(
        state_dir=StateDirectory(tmp_path), environment={}, post=post, now_ms=lambda: 0, wall_ms=lambda: 0
    )
    told: list[tuple[RuntimeContext, bool]] = []

    class Part:
        def reconfigure(self, context: RuntimeContext) -> None:
            told.append((context, core.in_force is context))

    core.parts = (Part(), Part())
    first, second = (cast("RuntimeContext", SimpleNamespace()) for _ in range(2))
    core.reconfigure(first)
    core.reconfigure(second)
    assert told == [(first, True), (first, True), (second, True), (second, True)]
