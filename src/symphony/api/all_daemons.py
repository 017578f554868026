"""The page over all daemons of a person: issues that need the person, and the health of each daemon.

A process of the command line serves it. The page only reads. A link to a daemon's page is created when a
person follows it, and works once, because each daemon has its own cookie and address.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from html import escape
from typing import Final, Protocol
from urllib.parse import urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from symphony.api import models, routes
from symphony.api.access import Access
from symphony.api.app import Handler, guarded, sign_in_pages
from symphony.api.forms import FormResult, Notices, local_path, see_other
from symphony.api.http import form_fields, small_page
from symphony.api.live import Changes
from symphony.api.pages.responding import Content, respond
from symphony.api.pages.views import health_words, issue_path, needing
from symphony.domain import SymphonyError

_ROWS_SHOWN: Final = 20
_SECTIONS: Final = (("All daemons", "/"),)


class DaemonFacts(Struct, frozen=True, kw_only=True):
    """One daemon.

    Attributes:
        key: identifies it in forms.
        name: the name of its repository.
        place: its workflow file, or its state directory.
        state: its answer; `None` if it did not answer.
        message: why it does not answer.
        hint: what to do about that.
    """

    key: str
    name: str
    place: str
    state: models.State | None = None
    message: str | None = None
    hint: str | None = None


class DaemonsInUse(Protocol):
    """The queries of the page."""

    async def facts(self) -> Sequence[DaemonFacts]:
        """The daemons, each with its last answer; a slow daemon delays nothing."""
        ...

    async def link(self, key: str) -> models.Link:
        """A link that signs one browser in to a daemon.

        Raises:
            SymphonyError: the daemon is unknown, refuses, or does not answer.
        """
        ...


class Need(Struct, frozen=True, kw_only=True):
    """An issue that waits for a person.

    Attributes:
        icon: `question`, `blocked` or `ready`.
        what: the need in a word or two.
        identifier, title: names of the issue.
        text: the question, what blocks it, or what was done.
        at: since when.
        path: its page at its daemon.
    """

    icon: str
    what: str
    identifier: str
    title: str
    text: str
    at: str | None
    path: str


class DaemonView(Struct, frozen=True, kw_only=True):
    """A daemon on the page.

    Attributes:
        key, name, place, message, hint: as in `DaemonFacts`.
        tone, health: its health.
        needs: issues that wait for a person, the longest waiting first.
        needs_left_out: how many of them have no row.
        running, retrying, waiting: how many issues.
        needing: how many issues wait for a person.
        slots: used and total slots; `None` if it does not answer.
        cost_usd: today's cost, if known.
    """

    key: str
    name: str
    place: str
    message: str | None
    hint: str | None
    tone: str
    health: str
    needs: tuple[Need, ...] = ()
    needs_left_out: int = 0
    running: int = 0
    retrying: int = 0
    waiting: int = 0
    needing: int = 0
    slots: tuple[int, int] | None = None
    cost_usd: float | None = None


class AllDaemons(Struct, frozen=True, kw_only=True):
    """The page: the daemons whose issues need a person, the neediest first, and all of them by name."""

    needing: int
    repositories: tuple[DaemonView, ...]
    daemons: tuple[DaemonView, ...]


def all_daemons_view(facts: Sequence[DaemonFacts]) -> AllDaemons:
    """The page with these daemons."""
    daemons = tuple(sorted(map(daemon_view, facts), key=lambda one: (one.name, one.place)))
    needy = sorted((one for one in daemons if one.needing), key=lambda one: -one.needing)
    return AllDaemons(needing=sum(one.needing for one in daemons), repositories=tuple(needy), daemons=daemons)


def daemon_view(facts: DaemonFacts) -> DaemonView:
    """A daemon on the page; equal views look equal at any time."""
    state = facts.state
    if state is None:
        tone, health = ("error", "Does not answer") if facts.message else ("info", "Is asked")
        return DaemonView(
            key=facts.key,
            name=facts.name,
            place=facts.place,
            message=facts.message,
            hint=facts.hint,
            tone=tone,
            health=health,
        )
    tone, health = health_words(state)
    needs = sorted(_needs(state), key=lambda need: need.at or "")
    return DaemonView(
        key=facts.key,
        name=facts.name,
        place=facts.place,
        message=None,
        hint=None,
        tone=tone,
        health=health,
        needs=tuple(needs[:_ROWS_SHOWN]),
        needs_left_out=max(needing(state) - _ROWS_SHOWN, 0),
        running=state.counts.running,
        retrying=state.counts.retrying,
        waiting=state.counts.waiting,
        needing=needing(state),
        slots=(state.slots.used, state.slots.limit),
        cost_usd=state.budgets.day_cost_usd,
    )


def _needs(state: models.State) -> Iterator[Need]:
    for row in state.blocked:
        asks = row.question is not None
        yield Need(
            icon="question" if asks else "blocked",
            what="asks" if asks else "blocked",
            identifier=row.issue_identifier,
            title=row.title,
            text=row.question or row.error,
            at=row.blocked_at,
            path=issue_path(row.issue_identifier),
        )
    for done in state.ready:
        yield Need(
            icon="ready",
            what="ready for review",
            identifier=done.issue_identifier,
            title=done.title,
            text=done.summary or "",
            at=done.ended_at,
            path=issue_path(done.issue_identifier),
        )


def create_all_daemons_app(daemons: DaemonsInUse, access: Access, changes: Changes) -> ASGIApp:
    """The application that serves the page, with the rules of access of a daemon's own pages."""
    notices = Notices()

    async def page(request: Request) -> Content:
        del request
        view = all_daemons_view(await daemons.facts())
        return Content(
            template="all_daemons.html",
            title=f"({view.needing}) All daemons" if view.needing else "All daemons",
            section="All daemons",
            sections=_SECTIONS,
            view=lambda: view,
            reloads=True,
            needs_you=view.needing,
        )

    async def events(request: Request) -> Response:
        return changes.open_stream(request.headers.get("last-event-id") or request.query_params.get("after"))

    handlers: dict[str, Handler] = {
        **sign_in_pages(access),
        "board_page": partial(respond, read=page),
        "events": events,
        routes.OPEN_DAEMON.name: _opener(daemons, access, notices),
    }
    paths: dict[str, dict[str, Handler]] = {}
    for row in routes.ALL_DAEMONS:
        paths.setdefault(row.path, {})[row.verb] = handlers[row.name]
    return guarded(paths, access, notices)


def _opener(
    daemons: DaemonsInUse, access: Access, notices: Notices
) -> Callable[[Request], Awaitable[Response]]:
    """The handler that sends a browser to a daemon's page; its fields are `daemon` and `path`."""

    async def handler(request: Request) -> Response:
        fields = await form_fields(request)
        access.check_form(request, fields.get("csrf", ""))
        try:
            link = await daemons.link(fields.get("daemon", ""))
        except SymphonyError as error:
            return see_other("/", notice=notices.put(FormResult.of_error(error)))
        url = f"{link.url}&{urlencode({'next': local_path(fields.get('path', '/'))})}"
        # The policy of pages does not let a form redirect to another origin, so the browser navigates by
        # itself.
        return small_page(
            "Opening the page of the daemon",
            f'<p><a href="{escape(url)}" rel="noopener noreferrer">Go on</a></p>',
            headers={"refresh": f"0; url={url}"},
        )

    return handler
