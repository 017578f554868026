"""Title and text of recurring issues: the Liquid templates of `schedules`."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from liquid.exceptions import LiquidError

from symphony.config.settings import ScheduleSettings
from symphony.config.template import MAX_SOURCE_CHARS, BoundedEnvironment, check_markup, render_bounded
from symphony.domain import MAX_ISSUE_BODY_CHARS, MAX_ISSUE_TITLE_CHARS, one_line
from symphony.files import read_present

_ENVIRONMENT: Final = BoundedEnvironment()
_EXAMPLE: Final = {"identifier": "SYM-1", "url": None, "state": "Done", "result": None}


def render_scheduled_issue(
    schedule: ScheduleSettings,
    *,
    base_dir: Path,
    now: datetime,
    previous: Mapping[str, str | None] | None,
) -> tuple[str, str]:
    """Title and body of the next issue of a schedule. Blocking: it reads `schedule.file`.

    Args:
        schedule: the schedule.
        base_dir: the directory of WORKFLOW.md.
        now: in the time zone of the schedule.
        previous: identifier, url, state and result of the former issue; `None` for the first one.

    Raises:
        ValueError: a text cannot be rendered or the file cannot be read; the message says why, in one line.
    """
    source = schedule.body or ""
    if schedule.file is not None:
        source = _content(base_dir / schedule.file)
    variables = {"now": now, "previous": previous}
    title = one_line(_render("title", schedule.title, variables).strip(), MAX_ISSUE_TITLE_CHARS)
    body = _render("body" if schedule.file is None else f"file {schedule.file}", source, variables).strip()
    if not title:
        raise ValueError("title: it is empty")
    if len(body) > MAX_ISSUE_BODY_CHARS:
        raise ValueError(f"the body has more than {MAX_ISSUE_BODY_CHARS:,} characters")
    return title, body


def _content(path: Path) -> str:
    try:
        data = read_present(path, MAX_SOURCE_CHARS)
        if data is None:
            raise ValueError(f"file: {path} is no file of at most {MAX_SOURCE_CHARS:,} bytes")
        return data.decode()
    except OSError as error:
        raise ValueError(f"file: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"file: {path} is not UTF-8") from error


def _render(name: str, source: str, variables: Mapping[str, object]) -> str:
    try:
        check_markup(source)
        return render_bounded(_ENVIRONMENT.from_string(source), variables, clock=time.monotonic)
    except LiquidError as error:
        raise ValueError(f"{name}: {error.message}") from error
    except Exception as error:  # filters may raise anything
        raise ValueError(f"{name}: {type(error).__name__}: {error}".splitlines()[0]) from error


def scheduled_issue_problem(schedule: ScheduleSettings, base_dir: Path) -> str | None:
    """Why title or body cannot be rendered, tried for the first issue and a later one; `None` if they can."""
    try:
        for previous in (None, _EXAMPLE):
            render_scheduled_issue(schedule, base_dir=base_dir, now=datetime.now(UTC), previous=previous)
    except ValueError as error:
        return str(error)
    return None
