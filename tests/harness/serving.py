"""A `Service` in this process, on a real board with scripted agents as threads, and a watcher to wait on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread

from harness.in_process import ScriptedHost
from harness.project import Project
from symphony.daemon.admission import open_store
from symphony.daemon.clock import wall_ms
from symphony.daemon.core import StepObserver
from symphony.daemon.service import Service
from symphony.daemon.state_dir import StateDirectory, instance_of
from symphony.scheduler import Command, Event, RunEnded, Running, State, StepFunction, step

__all__ = ["DEADLINE_S", "Served", "Watcher", "make_service", "move", "serving"]


DEADLINE_S = 120.0
F = TypeVar("F")


@dataclass
class Watcher:
    """An observer: all facts, commands and states so far, and a way to wait for one of them."""

    facts: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    then: list[tuple[type, Callable[[], None]]] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)

    def __call__(self, before: State, fact: Event, after: State, commands: tuple[Command, ...]) -> None:
        del before
        self.facts.append(fact)
        self.commands += commands
        self.states.append(after)
        for kind, action in self.then:
            if isinstance(fact, kind):
                action()
        self.changed.set()
        self.changed = anyio.Event()

    def all(self, kind: type[F]) -> list[F]:
        """The facts and commands of a kind, in order."""
        return [one for one in (*self.facts, *self.commands) if isinstance(one, kind)]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is so, looked at after each step."""
        with anyio.fail_after(DEADLINE_S):
            while not holds():
                await self.changed.wait()

    async def until_seen(self, kind: type[F], count: int = 1) -> F:
        """Wait for the `count`-th fact or command of a kind."""
        await self.until(lambda: len(self.all(kind)) >= count)
        return self.all(kind)[count - 1]

    @property
    def running(self) -> list[Running]:
        """The runs there are now."""
        return list(self.states[-1].running.values()) if self.states else []

    @property
    def outcomes(self) -> list[str]:
        """How the runs ended so far."""
        return [fact.outcome.kind.value for fact in self.all(RunEnded)]

    @property
    def run_ids(self) -> list[str]:
        """Every run there was, by its id."""
        return list(dict.fromkeys(run.run_id for state in self.states for run in state.running.values()))


@dataclass
class Served:
    """A service at work; `done` is set once it has ended by itself."""

    service: Service
    watcher: Watcher
    done: anyio.Event

    async def ended(self) -> None:
        """Wait for its end."""
        with anyio.fail_after(DEADLINE_S):
            await self.done.wait()


async def make_service(
    project: Project,
    *observers: StepObserver,
    once: bool = False,
    port: int | None = None,
    step: StepFunction = step,
    wall_ms: Callable[[], int] = wall_ms,
) -> Service:
    """A service for the project's workflow file, which decides by `step`."""
    environment = project.env()
    workflow = project.repo / "WORKFLOW.md"
    await to_thread.run_sync(lambda: (project.root / "home").mkdir(exist_ok=True))
    return Service(
        store=await to_thread.run_sync(open_store, workflow, environment),
        state_dir=StateDirectory(project.state_dir),
        host=ScriptedHost(instance=await to_thread.run_sync(instance_of, project.state_dir)),
        environment=environment,
        once=once,
        observers=observers,
        port=port,
        step=step,
        wall_ms=wall_ms,
    )


@asynccontextmanager
async def serving(
    project: Project,
    *observers: StepObserver,
    once: bool = False,
    port: int | None = None,
    step: StepFunction = step,
    wall_ms: Callable[[], int] = wall_ms,
) -> AsyncIterator[Served]:
    """Serve the project; at the end everything is stopped, whatever it was doing."""
    watcher = Watcher()
    served = Served(
        await make_service(project, watcher, *observers, once=once, port=port, step=step, wall_ms=wall_ms),
        watcher,
        anyio.Event(),
    )

    async def run() -> None:
        await served.service.run()
        served.done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield served
            served.service.request_shutdown(now=True)
            await served.ended()
        except BaseException:
            tasks.cancel_scope.cancel()
            raise


async def move(path: Path, state: str) -> None:
    """Change the state of an issue file, as a person with an editor would."""

    def edit() -> None:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(f"state: {state}\n" if one.startswith("state:") else one for one in lines))

    await to_thread.run_sync(edit)
