"""The clock of the simulations that run the real runtime."""

import time

import anyio
import pytest
from anyio import to_thread

from kit.virtual_time import NothingWillHappenError, run


def test_a_day_passes_at_once_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def after(name: str, wait_s: float) -> None:
            await anyio.sleep(wait_s)
            seen.append((name, anyio.current_time()))

        async with anyio.create_task_group() as tasks:
            for name, wait_s in (("day", 86_400), ("second", 1), ("hour", 3_600)):
                tasks.start_soon(after, name, wait_s)
        return seen

    assert run(main) == [("second", 1), ("hour", 3_600), ("day", 86_400)]


def test_a_limit_passes_too() -> None:
    async def main() -> bool:
        with anyio.move_on_after(120) as limit:
            await anyio.sleep(121)
        return limit.cancelled_caught and anyio.current_time() == 120

    assert run(main)


def test_the_clock_stands_still_while_a_thread_works() -> None:
    async def main() -> float:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 60)
            await to_thread.run_sync(time.sleep, 0.02)
            now_s = anyio.current_time()
            tasks.cancel_scope.cancel()
        return now_s

    assert run(main) == 0


def test_a_program_that_waits_for_itself_is_told() -> None:
    async def main() -> None:
        await anyio.Event().wait()

    with pytest.raises(NothingWillHappenError):
        run(main)
