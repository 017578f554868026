"""The routes of the pages and of the files that they load.

Pages are made and rendered in a thread. The first one loads the template engine.
"""

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from symphony import to_thread
from symphony.api.forms import MAX_SELECTED, feedback_skipped, local_path
from symphony.api.http import RequestError
from symphony.api.interface import (
    MAX_RUNS,
    RUN_OUTCOMES,
    LibraryInUse,
    Operator,
    RunQuery,
    UnavailableError,
)
from symphony.api.library import proposals
from symphony.api.models import LibraryProposal, RunRow
from symphony.api.pages.responding import SLOW_MS, THEME_COOKIE, THEMES, UNKNOWN_ISSUE, Content
from symphony.api.pages.views import (
    ACTIONS,
    ENDED_SHOWN,
    ENTRIES_SHOWN,
    MAX_WAITING_SHOWN,
    RATED_STATUSES,
    RUNS_SHOWN,
    WAITING_SHOWN,
    board_view,
    confirm_view,
    history_view,
    issue_view,
    needing,
    system_view,
)
from symphony.api.pages.work_views import work_view
from symphony.api.parameters import identifier, run_query, selection, transcript_part
from symphony.api.routes import SYSTEM_PATH
from symphony.domain import Selection, SymphonyError, plural

_ENDED: Final = RunQuery(
    since_s=12 * 3_600.0, outcomes=frozenset(RUN_OUTCOMES) - {"running"}, limit=ENDED_SHOWN
)
_WEEK_S: Final = 7 * 86_400.0
_THEME_SECONDS: Final = 365 * 86_400
_ICON: Final = re.compile(r"icon-(0|[1-9][0-9]?|100)\.svg", re.ASCII)
_PICTURES: Final = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
}
"""Types that are shown as pictures; SVG is not among them, because it may contain a script."""
_TEXTS: Final = frozenset({".csv", ".json", ".log", ".md", ".txt", ".xml", ".yaml", ".yml"})
_FOREVER: Final = "private, max-age=31536000, immutable"


class Pages:
    """The handlers of the pages."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def board(self, request: Request) -> Content:
        """All issues: which need a person, which run, which wait and why."""
        only, selecting = selection(request), "select" in request.query_params
        limit = WAITING_SHOWN if only.limit is None else min(only.limit, MAX_WAITING_SHOWN)
        state = await self._operator.state(replace(only, limit=limit))
        ended, proposals = await self._ended(only.text), await self._proposals()
        waiting = needing(state)
        return Content(
            template="board.html",
            title=f"({waiting}) Board" if waiting else "Board",
            section="Board",
            twin="/api/v1/state",
            now=state.generated_at,
            view=lambda: board_view(state, only, ended, proposals, selecting=selecting),
            reloads=not selecting and not any(row.question for row in state.blocked),
            needs_you=waiting,
        )

    async def _ended(self, text: str) -> tuple[RunRow, ...]:
        """Runs that ended recently; none if the journal cannot be read, which the state reports."""
        try:
            return (await self._operator.runs(replace(_ENDED, limit=MAX_RUNS) if text else _ENDED)).runs
        except UnavailableError:
            return ()

    async def _proposals(self) -> tuple[LibraryProposal, ...]:
        """The open proposals of the library; none if it cannot be read, which its own page reports."""
        try:
            return await to_thread.run_sync(_open_proposals, self._operator.library())
        except (UnavailableError, SymphonyError):
            return ()

    async def confirm(self, request: Request) -> Content:
        """Ask before an action on the issues that a person has selected."""
        query = request.query_params
        verb, names = query.get("verb", ""), list(dict.fromkeys(filter(None, query.getlist("issue"))))
        if verb not in ACTIONS:
            raise RequestError(400, "bad_request", f"verb is one of {', '.join(ACTIONS)}")
        if not 0 < len(names) <= MAX_SELECTED:
            raise RequestError(400, "bad_request", f"select 1 to {MAX_SELECTED} issues on the board")
        found = {name: await self._operator.issue(name) for name in names}
        return Content(
            template="confirm.html",
            title=f"{ACTIONS[verb].label} {plural(len(names), 'issue')}",
            section="Board",
            view=lambda: confirm_view(verb, found, local_path(query.get("back", "/"))),
            still=True,
        )

    async def issue(self, request: Request) -> Content:
        """One issue: its status, its agent's messages, its prompt, its runs and decisions."""
        name, part = identifier(request), transcript_part(request)
        task = await self._operator.task(name)  # goes first, because it fetches the states of the tracker
        issue = await self._operator.issue(name)
        if issue is None:
            raise RequestError(404, "issue_not_found", UNKNOWN_ISSUE)
        asks = not feedback_skipped(request, name)
        path, part = request.scope["path"], replace(part, limit=ENTRIES_SHOWN)
        writes = "write" in request.query_params
        transcript = await self._operator.transcript(name, part)
        local = issue.running is not None and issue.workspace.host is None
        work = await self._operator.working_files(name) if local else None
        return Content(
            template="issue.html",
            title=f"{issue.issue_identifier} {issue.title}",
            section="Board",
            twin=f"/api/v1/{quote(name, safe='')}",
            now=issue.generated_at,
            view=lambda: issue_view(
                issue, task, transcript, path, part, work=work, asks_feedback=asks, writes=writes
            ),
            reloads=not writes
            and (issue.blocked is None or issue.blocked.question is None)
            and issue.status not in RATED_STATUSES,
            scope=f"issue:{name}",
        )

    async def prompt(self, request: Request) -> Content:
        """The prompt that a dispatch of the issue would send now."""
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
        """The runs in the journal, and their usage."""
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

    async def work(self, request: Request) -> Content:
        """The lines that the workspace of an issue has changed so far."""
        name = identifier(request)
        diff = await self._operator.working_diff(name)
        if diff is None:
            raise RequestError(404, "no_workspace", "The issue has no workspace on this machine.")
        return Content(
            template="work.html",
            title=f"Work on {name}",
            section="Board",
            view=lambda: work_view(name, diff),
            scope=f"issue:{name}",
            pause_ms=SLOW_MS,
        )

    async def artifact(self, request: Request) -> Response:
        """A file that a check left: pictures and texts are shown, other files are downloads; never a page."""
        found = await self._operator.artifact(identifier(request), str(request.path_params["file"]))
        if found is None:
            raise RequestError(404, "not_found", "there is no such file, or it was removed")
        name, data = found
        kind = _PICTURES.get(PurePosixPath(name).suffix.lower())
        if kind is None and PurePosixPath(name).suffix.lower() in _TEXTS and _is_text(data):
            kind = "text/plain; charset=utf-8"
        shown = quote(PurePosixPath(name).name, safe="", errors="replace")
        how = "attachment" if kind is None else "inline"
        return Response(
            data,
            headers={
                "content-type": kind or "application/octet-stream",
                "content-disposition": f"{how}; filename*=UTF-8''{shown}",
                "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
            },
        )

    @staticmethod
    async def theme(request: Request) -> Response:
        """Remember the colours that a person has chosen, and go back to the page."""
        chosen, back = request.query_params.get("to", ""), request.query_params.get("back", "/")
        if chosen not in THEMES:
            raise RequestError(400, "bad_request", f"to is one of {', '.join(THEMES)}")
        response = RedirectResponse(local_path(back), status_code=303)
        response.set_cookie(THEME_COOKIE, chosen, max_age=_THEME_SECONDS, httponly=True, samesite="strict")
        return response

    @staticmethod
    async def asset(request: Request) -> Response:
        """A file that pages load. Its address changes with its content."""
        found = await to_thread.run_sync(_asset, str(request.path_params["name"]))
        if found is None:
            raise RequestError(404, "not_found", "there is no such file")
        content, kind = found
        return Response(content, media_type=kind, headers={"cache-control": _FOREVER})


def _open_proposals(library: LibraryInUse) -> tuple[LibraryProposal, ...]:
    if not library.store.path.exists():  # a query would create the library
        return ()
    return proposals(library, page=None).proposals


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _asset(name: str) -> tuple[bytes, str] | None:
    from symphony.api.pages import rendering  # noqa: PLC0415 - as above

    if (count := _ICON.fullmatch(name)) is not None:
        return rendering.icon_file(int(count[1])), "image/svg+xml"
    kind = rendering.ASSETS.get(name)
    return None if kind is None else (rendering.asset(name), kind)
