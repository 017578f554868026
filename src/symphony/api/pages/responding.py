"""Makes responses of pages: the content, the frame around it, and error pages."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from symphony import to_thread
from symphony.api.access import Access, Caller, root_of
from symphony.api.forms import FormResult
from symphony.api.history import utc_now
from symphony.api.http import PAGE_HEADERS, RequestError
from symphony.api.interface import UnavailableError, UnknownError
from symphony.api.models import utc_text
from symphony.api.pages.views import SECTIONS, PageFrame, Problem
from symphony.domain import SymphonyError
from symphony.library.model import LibraryError

THEMES: Final = ("auto", "light", "dark")
THEME_COOKIE: Final = "symphony_theme"
_LOCAL_PATH: Final = re.compile(r'\s(?:href|src|action|formaction|data-check|data-root)="/(?!/|assets/)')
UNKNOWN_ISSUE: Final = "The daemon, its journal and the tracker have no issue of this name."
SLOW_MS: Final = 5_000
"""The shortest time between two refreshes of a costly page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a page before rendering.

    Attributes:
        template: the template file.
        title: the title for people.
        view: makes the values of the template; pure.
        section: its entry in the navigation.
        twin: the path of the same facts as JSON; empty without one.
        now: the time of the content.
        reloads: whether the page may reload itself without JavaScript.
        scope: the scope of the events that change it; empty for all events.
        pause_ms: the shortest time between two refreshes.
        still: whether a person is working on the page, so that it does not follow the daemon.
        notice: the result of a form, if the page is the answer to it.
        needs_you: how many issues wait for a person, shown in the icon of the page.
        sections: the navigation: names and paths.
    """

    template: str
    title: str
    view: Callable[[], object]
    section: str = ""
    twin: str = ""
    now: str = field(default_factory=lambda: utc_text(utc_now()))
    reloads: bool = False
    scope: str = ""
    pause_ms: int = 400
    still: bool = False
    notice: FormResult | None = None
    needs_you: int = 0
    sections: tuple[tuple[str, str], ...] = SECTIONS


async def respond(request: Request, read: Callable[[Request], Awaitable[Content]]) -> Response:
    """The page, or a page that says why there is none."""
    status = HTTPStatus.OK
    try:
        content = await read(request)
    except UnavailableError as error:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        content = _problem_page("The daemon cannot answer now", error.message)
    except UnknownError as error:
        status = HTTPStatus.NOT_FOUND
        content = _problem_page("Not found", error.message, error.hint)
    except RequestError as error:
        status = HTTPStatus(error.status_code)
        content = _problem_page("This page cannot be shown", error.message)
    except LibraryError as error:
        status = HTTPStatus.CONFLICT
        content = _problem_page("The library cannot be used", error.failure.message, error.failure.hint)
    except SymphonyError as error:
        status = HTTPStatus.CONFLICT
        content = _problem_page("A dispatch would fail", error.failure.line, error.failure.hint)
    return await to_thread.run_sync(rendered, request, content, status)


def _problem_page(title: str, message: str, hint: str | None = None) -> Content:
    return Content(
        template="problem.html",
        title=title,
        view=lambda: Problem(title=title, message=message, hint=hint),
        reloads=True,
    )


def rendered(request: Request, content: Content, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """The response; 304 if the browser already has the page. Passing time does not change a page."""
    from symphony.api.pages import rendering  # noqa: PLC0415 - see the docstring of `rendering`

    access: Access = request.app.state.access
    theme, query = request.cookies.get(THEME_COOKIE, ""), request.url.query
    frame = PageFrame(
        twin=f"{content.twin}?{query}" if content.twin and query else content.twin,
        theme=theme if theme in THEMES else "auto",
        path=f"{request.scope['path']}?{query}" if query else request.scope["path"],
        csrf=access.csrf(request) or "",
        root=root_of(request.scope),
        signed_in=access.caller(request) is Caller.BROWSER,
        notice=content.notice or request.app.state.notices.of(request),
        sections=content.sections,
    )
    view = content.view()
    shown = msgspec.json.encode(
        (replace(content, now=""), frame, view, rendering.asset_path("app.css")),
        enc_hook=lambda _: None,  # the function that makes the view
    )
    etag = f'W/"{sha256(shown).hexdigest()[:32]}"'
    headers = {**PAGE_HEADERS, "etag": etag}
    if status is HTTPStatus.OK and etag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    html = rendering.render(content.template, page=content, frame=frame, view=view, now=content.now)
    html = _LOCAL_PATH.sub(rf"\g<0>{frame.root[1:]}/" if frame.root else r"\g<0>", html)
    return Response(html, status_code=status, media_type="text/html", headers=headers)
