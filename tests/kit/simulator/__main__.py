"""`python -m kit.simulator`: live through months, or through thousands of short schedules."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress

from kit.simulator import crash_points
from kit.simulator.invariants import ALL
from kit.simulator.mass import Mass, share
from kit.simulator.profiles import PROFILES
from kit.simulator.recording import judge, write
from kit.simulator.referee import InvariantBrokenError
from kit.simulator.result import Result
from kit.simulator.rules import table
from kit.simulator.scenario import Scenario, days, minutes
from kit.simulator.schedules import run_schedule
from kit.simulator.simulation import Simulation
from kit.simulator.statistics import Statistics
from symphony.replay import RecordingError, describe_step, read_recording
from symphony.scheduler import StepFunction, step

__all__ = ["main"]


_PROGRAM = "PYTHONPATH=tests python -m kit.simulator"
_EPILOG = """\b
Examples:
  PYTHONPATH=tests python -m kit.simulator --days 90 --issues 500 --profile storm
  PYTHONPATH=tests python -m kit.simulator --seed 4711 --days 30 --profile outage --trace
  PYTHONPATH=tests python -m kit.simulator --schedules 10000
  PYTHONPATH=tests python -m kit.simulator --seed 4711 --record /tmp/lives && \\
    PYTHONPATH=tests python -m kit.simulator --replay /tmp/lives/4711-1.json

Exit code: 0 every rule held, 1 one was broken, 2 wrong usage."""


def _step_named(_: click.Context, __: click.Parameter, name: str | None) -> StepFunction:
    """The function `package.module:function`, or the scheduler's own."""
    if name is None:
        return step
    module, function = (*name.split(":", 1), "")[:2]
    try:
        found: StepFunction = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"no such function: {name} ({error})") from error
    return found


def _print_invariants(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
    if wanted:
        click.echo(table(ALL.values()))
        context.exit()


def _print_crash_points(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's
    if wanted:
        click.echo(crash_points.table())
        context.exit()


@click.command(epilog=_EPILOG)
@click.option("--seed", default=0, show_default=True, help="Decides everything that chance decides.")
@click.option("--days", "length_days", type=click.FloatRange(min=0), help="Virtual days  [default: 30]")
@click.option(
    "--minutes", "length_minutes", type=click.FloatRange(min=0), help="Virtual minutes, added to --days."
)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="storm",
    show_default=True,
    help="How bad the world is.",
)
@click.option(
    "--issues", type=click.IntRange(min=0), default=100, show_default=True, help="Issues that people file."
)
@click.option(
    "--slots", type=click.IntRange(min=0), default=10, show_default=True, help="agent.max_concurrent_agents"
)
@click.option(
    "--poll-s",
    type=click.FloatRange(min=0.001),
    default=300.0,
    show_default=True,
    help="Seconds between polls.",
)
@click.option(
    "--schedules",
    type=click.IntRange(min=1),
    help="Instead: so many short random schedules, seed after seed.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that share the schedules.",
)
@click.option(
    "--replay",
    "recording",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Instead: a recorded life.",
)
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the inputs of each life to this folder.",
)
@click.option("--step", metavar="MODULE:FUNCTION", callback=_step_named, help="Judge another step function.")
@click.option("--trace", is_flag=True, help="Print every input and what was said to it.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Steps shown before a broken rule.",
)
@click.option(
    "--invariants",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_invariants,
    help="Print the rules as a Markdown table and exit.",
)
@click.option(
    "--crash-points",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_crash_points,
    help="Print what comes of a death at each crash point as a Markdown table and exit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    *,
    seed: int,
    schedules: int | None,
    jobs: int,
    recording: Path | None,
    step: StepFunction,
    **options: Any,
) -> int:
    """Run the real scheduler in a simulated world and check every rule after every step.

    A broken rule is shown with the last steps of the issue, the seed, and the command that replays it.
    """
    if recording is not None:
        return _replay(recording, step, as_json=options["as_json"])
    if schedules is not None:
        if jobs > 1 and (options["trace"] or options["record"]):
            raise click.UsageError("--trace and --record show one process: leave --jobs out")
        return _schedules(seed, schedules, jobs, step, options)
    return _months(seed, step, options)


def _months(seed: int, step: StepFunction, options: dict[str, Any]) -> int:
    scenario = Scenario(
        issues=options["issues"],
        slots=options["slots"],
        poll_interval_ms=round(options["poll_s"] * 1000),
        profile=PROFILES[options["profile"]],
    )
    length_days, length_minutes = options["length_days"], options["length_minutes"]
    if length_days is None and length_minutes is None:
        length_days = 30
    duration = days(length_days or 0) + minutes(length_minutes or 0)
    simulation = Simulation(scenario, seed=seed, duration=duration, step=step)
    with _progress(simulation.end_ms, "virtual time") as tell:
        result = simulation.run(progress=tell)
    _keep(result, options["record"])
    if options["as_json"]:
        click.echo(json.dumps(result.as_json(), indent=2))
    else:
        _show(result, options)
    return 1 if result.violations else 0


def _show(result: Result, options: dict[str, Any]) -> None:
    if options["trace"]:
        for told in result.history:
            click.echo(describe_step(*told))
    click.echo(_figures(result.statistics))
    click.echo(result.report(last=options["last"]))


def _figures(found: Statistics) -> str:
    gap = (
        "-"
        if found.slot_gap_ms is None
        else f"{found.slot_gap_ms:.0f} ms, longest {found.longest_slot_gap_ms} ms"
    )
    most = max(found.starts_per_issue.values(), default=0)
    return "\n".join(
        (
            f"virtual days      {found.virtual_ms / 86_400_000:.1f} in {found.lives} lives of the daemon",
            f"issues            {found.issues}, of which {found.finished} ended done",
            f"runs              {found.starts}, of which {found.retries} retries; at most {most} a piece",
            f"blocked           {found.blocks} times",
            f"live at once      at most {found.max_running}",
            f"requests          {found.polls} polls, {found.refreshes} refreshes",
            f"slot gap          median {gap}",
        )
    )


def _schedules(first: int, count: int, jobs: int, step: StepFunction, options: dict[str, Any]) -> int:
    found, last = Mass(), options["last"]
    with _progress(count, "schedules") as tell:
        if jobs > 1:
            for part in share(first, count, jobs=jobs, step=step, last=last):
                found.join(part)
                tell(found.schedules)
        else:
            for number in range(count):
                result = run_schedule(first + number, step=step)
                found.add(result, last=last)
                if options["trace"] and not options["as_json"]:
                    for told in result.history:
                        click.echo(describe_step(*told))
                _keep(result, options["record"])
                tell(number + 1)
    if options["as_json"]:
        click.echo(json.dumps(found.as_json(first), indent=2))
    else:
        for one in found.broken:
            click.echo(f"{one.report}\n")
        click.echo(
            f"{count} schedules from seed {first}, {found.inputs} inputs, {found.lives} lives, "
            f"{found.crashes.total()} deaths, {len(found.broken_seeds)} broke a rule"
        )
    return 1 if found.broken_seeds else 0


def _replay(file: Path, step: StepFunction, *, as_json: bool) -> int:
    try:
        recording = read_recording(file.read_text("utf-8"))
    except (RecordingError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {error}") from error
    broken: dict[str, str] | None = None
    try:
        judge(recording, step=step)
    except InvariantBrokenError as error:
        broken = {"invariant": error.violation.invariant, "message": error.violation.message}
    found = {"recording": str(file), "inputs": len(recording.steps), "broken": broken}
    words = (
        f"broken: {broken['invariant']}: {broken['message']}"
        if broken
        else f"{len(recording.steps)} inputs, no rule broken"
    )
    click.echo(json.dumps(found, indent=2) if as_json else words)
    return 1 if broken else 0


def _keep(result: Result, folder: Path | None) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, recording in enumerate(result.recordings, 1):
        (folder / f"{result.seed}-{number}.json").write_text(write(recording), "utf-8")


@contextmanager
def _progress(total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; never on stdout, which may be read by a program."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def _run() -> int:
    try:
        return int(main.main(prog_name=_PROGRAM, standalone_mode=False) or 0)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        click.echo(f"hint: {_PROGRAM} --help", err=True)
        return error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        return 130


if __name__ == "__main__":
    sys.exit(_run())
