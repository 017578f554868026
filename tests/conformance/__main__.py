"""The command `python -m conformance`: run the tests that show rules, or look at what they claim."""

import os
import sys
from pathlib import Path

import click
from rich.console import Console

from conformance.collect import collect, run
from conformance.recorder import Claims, Result, read_results
from conformance.report import PAGE, render
from conformance.skips import REQUIRE_REAL
from conformance.table import as_json, show
from conformance.today import faults_of_page
from conformance.verdict import faults_of_claims, faults_of_results, verdicts

EPILOG = """\
\b
Examples:
  python -m conformance                    run the tests and judge them
  python -m conformance --from FILE        judge what `pytest --conformance-results=FILE` wrote
  python -m conformance --check            look at claims and page only; run nothing
  python -m conformance --write            write docs/CONFORMANCE.md
"""
_DIRECTORY = click.Path(path_type=Path, file_okay=False, exists=True)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(epilog=EPILOG)
@click.option("--root", type=_DIRECTORY, default=".", help="The repository.")
@click.option("--write", is_flag=True, help="Write the page and run nothing.")
@click.option("--check", is_flag=True, help="Compare the page with what the tests claim, and run nothing.")
@click.option("--from", "file", type=_FILE, help="Results to judge, instead of running the tests.")
@click.option("--workers", type=click.IntRange(0), default=2, help="Processes to run the tests in.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def main(*, root: Path, write: bool, check: bool, file: Path | None, workers: int, json_: bool) -> None:
    """Show which rules of the specification hold, by the tests that show them.

    Ends with 1 if anything is wrong.
    """
    root = root.resolve()
    told, results = (None, None) if file is None else _read(file)
    claims = told or collect(root)
    if write:
        (root / PAGE).write_text(render(claims.claimed), encoding="utf-8")
        click.echo(f"wrote {PAGE}")
        sys.exit(_complain(list(faults_of_claims(claims, root))))
    faults = [*faults_of_claims(claims, root), *faults_of_page(claims, root)]
    if check:
        sys.exit(_complain(faults))
    if results is None:
        results = run(root, workers=workers)
    require_real = bool(os.environ.get(REQUIRE_REAL))
    faults += faults_of_results(claims, results, require_real=require_real)
    judged = verdicts(claims, results)
    if json_:
        click.echo(as_json(judged, faults))
    else:
        show(judged, faults, Console())
    sys.exit(1 if faults else 0)


def _read(file: Path) -> tuple[Claims | None, frozenset[Result]]:
    try:
        return read_results(file)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{file} cannot be used: {error}") from error


def _complain(faults: list[str]) -> int:
    for fault in faults:
        click.echo(f"error: {fault}", err=True)
    return 1 if faults else 0


if __name__ == "__main__":
    main(prog_name="python -m conformance")
