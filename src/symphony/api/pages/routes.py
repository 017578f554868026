"""The routes of the pages and of the files that they load.

Pages are made and rendered in a thread. The first one loads the template engine.
"""

from dataclasses import replace
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from symphony import to_thread
from symphony.api.forms import feedback_skipped, local_path
from symphony.api.http import RequestError
from symphony.api.interface import RUN_OUTCOMES, Operator, RunQuery, UnavailableError
from symphony.api.models import RunRow
from symphony.api.pages.responding import SLOW_MS, THEME_COOKIE, THEMES, Content
from symphony.api.pages.views import (
    ENTRIES_SHOWN,
    MAX_WAITING_SHOWN,
    RATED_STATUSES,
    RUNS_SHOWN,
    WAITING_SHOWN,
    board_view,
    history_view,
    issue_view,
    system_view,
)
from symphony.api.parameters import identifier, number, run_query, selection
from symphony.api.routes import SYSTEM_PATH
from symphony.domain import MAX_COUNT, Selection

_ENDED: Final = RunQuery(since_s=12 * 3_600.0, outcomes=frozenset(RUN_OUTCOMES) - {"running"}, limit=8)
_WEEK_S: Final = 7 * 86_400.0
_THEME_SECONDS: Final = 365 * 86_400
_FOREVER: Final = "private, max-age=31536000, immutable"


class Pages:
    """The handlers of the pages."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def board(self, request: Request) -> Content:
        """All issues: what needs a person, what runs, what waits and why."""
        only = selection(request)
        limit = WAITING_SHOWN if only.limit is None else min(only.limit, MAX_WAITING_SHOWN)
        state = await self._operator.state(replace(only, limit=limit))
        ended = await self._ended()
        return Content(
            template="board.html",
            title="Board",
            section="Board",
            twin="/api/v1/state",
            now=state.generated_at,
            view=lambda: board_view(state, only, ended),
            reloads=not any(row.question for row in state.blocked),
        )

    async def _ended(self) -> tuple[RunRow, ...]:
        """Runs that ended lately; none if the journal cannot be read, which the state reports."""
        try:
            return (await self._operator.runs(_ENDED)).runs
        except UnavailableError:
            return ()

    async def issue(self, request: Request) -> Content:
        """One issue: what happens, what its agent says, what it was sent, its runs and decisions."""
        name, run = identifier(request), request.query_params.get("run") or None
        issue = await self._operator.issue(name)
        if issue is None:
            raise RequestError(404, "issue_not_found", "Neither the daemon nor its journal knows this issue.")
        asks = not feedback_skipped(request, name)
        after, path = number(request, "after", at_most=MAX_COUNT), request.scope["path"]
        transcript = await self._operator.transcript(name, run, after, ENTRIES_SHOWN)
        return Content(
            template="issue.html",
            title=f"{issue.issue_identifier} {issue.title}",
            section="Board",
            twin=f"/api/v1/{quote(name, safe='')}",
            now=issue.generated_at,
            view=lambda: issue_view(issue, transcript, path, asks_feedback=asks),
            reloads=(issue.blocked is None or issue.blocked.question is None)
            and issue.status not in RATED_STATUSES,
            scope=f"issue:{name}",
        )

    async def prompt(self, request: Request) -> Content:
        """What a dispatch of the issue would send now."""
        name = identifier(request)
        prompt = await self._operator.prompt(name)
        if prompt is None:
            raise RequestError(404, "issue_not_found", "The daemon has nothing to send for this issue.")
        return Content(
            template="prompt.html",
            title=f"Prompt of {name}",
            section="Board",
            twin=f"/api/v1/{quote(name, safe='')}/prompt",
            view=lambda: prompt,
        )

    async def history(self, request: Request) -> Content:
        """The runs in the journal, and what they used."""
        since, limit = request.query_params.get("since", "7d"), request.query_params.get("limit")
        query = run_query(request)
        if "since" not in request.query_params:
            query = replace(query, since_s=_WEEK_S)
        if limit is None:
            query = replace(query, limit=RUNS_SHOWN)
        runs = await self._operator.runs(replace(query, by=query.by or "day"))
        days = runs if runs.by == "day" else await self._operator.runs(replace(query, by="day", limit=0))
        return Content(
            template="history.html",
            title="History",
            section="History",
            twin="/api/v1/runs",
            now=runs.generated_at,
            view=lambda: history_view(runs, days, query, since),
            reloads=True,
            pause_ms=SLOW_MS,
        )

    async def system(self, request: Request) -> Content:
        """The daemon: what is wrong, tracker, agents, budgets, settings in force and versions."""
        del request
        system, state = await self._operator.system(), await self._operator.state(Selection(limit=0))
        return Content(
            template="system.html",
            title="System",
            section="System",
            twin=f"{SYSTEM_PATH}.json",
            now=state.generated_at,
            view=lambda: system_view(system, state),
            reloads=True,
            pause_ms=SLOW_MS,
        )

    async def theme(self, request: Request) -> Response:
        """Remember the colours that a person has chosen, and go back to the page."""
        chosen, back = request.query_params.get("to", ""), request.query_params.get("back", "/")
        if chosen not in THEMES:
            raise RequestError(400, "bad_request", f"to is one of {', '.join(THEMES)}")
        response = RedirectResponse(local_path(back), status_code=303)
        response.set_cookie(THEME_COOKIE, chosen, max_age=_THEME_SECONDS, httponly=True, samesite="strict")
        return response

    async def asset(self, request: Request) -> Response:
        """A file that pages load. Its address changes with its content."""
        found = await to_thread.run_sync(_asset, str(request.path_params["name"]))
        if found is None:
            raise RequestError(404, "not_found", "there is no such file")
        content, kind = found
        return Response(content, media_type=kind, headers={"cache-control": _FOREVER})


def _asset(name: str) -> tuple[bytes, str] | None:
    from symphony.api.pages import rendering  # noqa: PLC0415 - as above

    kind = rendering.ASSETS.get(name)
    return None if kind is None else (rendering.asset(name), kind)
