from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from harness.scheduling import make_failure
from symphony.cli import serving
from symphony.cli.main import main
from symphony.domain import SymphonyError


def _raising(error: BaseException) -> Callable[..., NoReturn]:
    def serve(*_: object, **__: object) -> NoReturn:
        raise error

    return serve


@pytest.mark.conformance("L-3")
@pytest.mark.parametrize(
    "error",
    [RuntimeError("a bug of ours"), MemoryError(), SymphonyError(make_failure("the disk is gone"))],
    ids=lambda error: type(error).__name__,
)
def test_a_daemon_that_ends_by_an_error_never_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    monkeypatch.setattr(serving, "serve", _raising(error))
    done = CliRunner().invoke(main, ["run", str(tmp_path / "WORKFLOW.md")])
    assert done.exit_code not in {0, None}
