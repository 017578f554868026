"""The HTTP application: the answers of the routes, methods and errors.

Each listener has its own application with its access rule. `routes` has the rows. A route answers 405 to
methods that it does not have.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
import structlog
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from symphony import to_thread
from symphony.api import library, models, routes
from symphony.api.access import Access, Caller, form_path, root_of
from symphony.api.explain import explain
from symphony.api.forms import (
    RETURN_SCRIPT,
    SIGN_IN_SCRIPT,
    TYPED,
    Forms,
    Notices,
    Once,
    SignInForms,
    keep_typed,
    refusal_page,
    show_typed,
    unsent_page,
)
from symphony.api.history import utc_now
from symphony.api.http import (
    MAX_ANSWER_BYTES,
    MAX_EDIT_BYTES,
    MAX_WEBHOOK_BYTES,
    SECURITY_HEADERS,
    RequestError,
    answer,
    answer_text,
    body_of,
    check_head,
    encoded,
    move_target,
    new_issue,
    rating,
    read_body,
    refusal,
    sent_fields,
    wants_page,
)
from symphony.api.interface import API_PREFIX, ApiError, OpenPort, Operator, UnavailableError, WebhookReceiver
from symphony.api.live import Changes
from symphony.api.models import Document, Health, Link, WebhookAnswer, utc_text
from symphony.api.openapi import description
from symphony.api.pages.change_routes import ChangePages
from symphony.api.pages.new_issue import NewIssuePages
from symphony.api.pages.responding import Content, respond
from symphony.api.pages.routes import Pages
from symphony.api.pages.skills_routes import SkillPages
from symphony.api.parameters import (
    commit,
    identifier,
    identifiers,
    only_learned,
    page_of,
    proposal_id,
    proposal_state,
    reviewer,
    run_query,
    selection,
    transcript_part,
    version_of,
    versions,
)
from symphony.api.sign_in import LINK_S
from symphony.api.typed import TypedTexts
from symphony.domain import SymphonyError

_WEBHOOKS_AT_ONCE: Final = 8
_ACCESS_REFUSED: Final = frozenset({401, 403})
_SIGN_IN_LOST: Final = frozenset({"unauthorized", "csrf"})
_log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Request, Document], Awaitable[Document | Response | None]]
"""Answers a request with a document; `None` for an unknown issue."""


def create_app(
    operator: Operator,
    access: Access,
    receiver: WebhookReceiver | None = None,
    *,
    changes: Changes,
    open_port: OpenPort,
) -> ASGIApp:
    """The application of one listener; without a `receiver` there is no route for webhooks."""
    notices = Notices()
    answers = _Answers(operator, access, changes, open_port).by_name()
    pages = {**_pages(operator, access, notices), **sign_in_pages(access)}
    paths: dict[str, dict[str, Handler]] = {}
    for row in routes.API:
        paths.setdefault(row.path, {})[row.verb] = partial(_answered, row, answers[row.name])
    for page in routes.PAGES:
        paths.setdefault(page.path, {})[page.verb] = pages[page.name]
    if receiver is not None:
        paths[routes.WEBHOOK.path] = {routes.WEBHOOK.verb: _webhook_handler(receiver)}
    return guarded(paths, access, notices, receiver, operator.typed)


def guarded(
    paths: Mapping[str, Mapping[str, Handler]],
    access: Access,
    notices: Notices,
    receiver: WebhookReceiver | None = None,
    typed: TypedTexts | None = None,
) -> ASGIApp:
    """The application with these handlers, by path and method, behind the access rule."""
    errors = (HTTPException, ApiError, SymphonyError)
    app = Starlette(
        routes=[Route(path, _resource(handlers)) for path, handlers in paths.items()],
        exception_handlers={**dict.fromkeys(errors, _on_error), Exception: _on_crash},
    )
    app.router.redirect_slashes = False
    app.state.access, app.state.notices = access, notices  # for the forms and notices of pages
    app.state.typed = typed or TypedTexts()
    return _Guard(app, access, receiver)


# --- answers ---------------------------------------------------------------------------------------------


class _Answers:
    """The answers of the API's routes."""

    def __init__(self, operator: Operator, access: Access, changes: Changes, open_port: OpenPort) -> None:
        self._operator = operator
        self._access = access
        self._changes = changes
        self._open_port = open_port

    def by_name(self) -> Mapping[str, Answer]:
        """The answers by the names of the rows."""
        ask = self._operator
        return {
            "state": lambda request, _: ask.state(selection(request)),
            "runs": lambda request, _: ask.runs(run_query(request)),
            "rehearsal": lambda request, _: ask.rehearse(identifiers(request)),
            "schedules": self._schedules,
            "run_schedule": self._run_schedule,
            "create_issue": self._create_issue,
            "events": self._events,
            "open": self._open,
            "refresh": self._refresh,
            "openapi": self._openapi,
            "issue": lambda request, _: ask.issue(identifier(request)),
            "task": lambda request, _: ask.task(identifier(request)),
            "prompt": lambda request, _: ask.prompt(identifier(request), request.query_params.get("phase")),
            "explanation": self._explanation,
            "review": self._review,
            "decide": self._decide,
            "transcript": lambda request, _: ask.transcript(identifier(request), transcript_part(request)),
            **{verb: partial(self._act, verb) for verb in routes.ON_ISSUE},
            "feedback": self._feedback,
            **{verb: partial(self._act, verb) for verb in routes.ON_DAEMON},
            "outbox": lambda _, __: ask.outbox(),
            **{row.name: partial(self._change_outbox, verb) for verb, row in routes.ON_OUTBOX.items()},
            "library_skills": lambda request, _: self._library(
                partial(library.skills, learned=only_learned(request)),
                request.query_params.get("q", ""),
                page_of(request),
            ),
            "library_skill": lambda request, _: self._library(
                library.skill, request.path_params["name"], version_of(request, "version")
            ),
            "library_diff": lambda request, _: self._library(
                library.diff, request.path_params["name"], *versions(request)
            ),
            "library_assignments": lambda _, __: self._library(library.assignments),
            "library_proposals": lambda request, _: self._library(
                library.proposals, proposal_state(request), page_of(request)
            ),
            "library_proposal": lambda request, _: self._library(library.proposal, proposal_id(request)),
            "library_check": lambda _, draft: self._library(library.check, draft),
            **{
                f"library_{verb}": lambda _, edit: self._library(library.change, edit)
                for verb in routes.EDITS
            },
            "skills": lambda _, __: ask.skills(),
            "system": lambda _, __: ask.system(),
            "metrics": self._metrics,
            "health": self._health,
        }

    async def _library(self, ask: Callable[..., Document], *given: object) -> Document:
        """The library's answer, from a thread."""
        return await to_thread.run_sync(ask, self._operator.library(), *given)

    async def _schedules(self, _: Request, __: Document) -> Document:
        return await self._operator.schedules()

    async def _run_schedule(self, _: Request, chosen: Document) -> Document:
        assert isinstance(chosen, models.ScheduleChoice)  # noqa: S101 - the row says so
        return await self._operator.run_schedule(chosen.name)

    async def _create_issue(self, _: Request, given: Document) -> Document:
        assert isinstance(given, models.NewIssue)  # noqa: S101 - the row says so
        return await self._operator.create_issue(new_issue(given))

    async def _explanation(self, request: Request, _: Document) -> Document | None:
        issue = await self._operator.issue(identifier(request))
        return None if issue is None else explain(issue)

    async def _review(self, request: Request, _: Document) -> Document | None:
        may_order = self._access.may_order(request)
        return await self._operator.review(
            identifier(request),
            reviewer(request) if may_order else None,
            commit(request, "since"),
            commit(request, "until"),
        )

    async def _decide(self, request: Request, given: Document) -> Document | None:
        assert isinstance(given, models.ReviewGiven)  # noqa: S101 - the row says so
        return await self._operator.decide(identifier(request), f"{API_PREFIX}{given.reviewer}", given)

    async def _refresh(self, _: Request, __: Document) -> Document:
        return self._operator.refresh()

    async def _events(self, request: Request, _: Document) -> Response:
        return self._changes.open_stream(
            request.headers.get("last-event-id") or request.query_params.get("after")
        )

    async def _open(self, request: Request, _: Document) -> Document:
        caller = self._access.caller(request)
        if caller is Caller.BROWSER:  # a longer link would outlive its own cookie
            raise RequestError(403, "forbidden", "a signed-in browser cannot sign in others")
        address = await self._open_port()
        if caller is Caller.OPERATOR:  # the caller knows from where this daemon can be reached
            address = f"http://{request.headers.get('host', '')}"
        return Link(
            url=f"{address}{routes.SIGN_IN_PATH}?link={self._access.sign_in.new_link()}",
            address=address,
            expires_at=utc_text(utc_now() + timedelta(seconds=LINK_S)),
        )

    async def _act(self, verb: str, request: Request, given: Document) -> Document | None:
        name, text = identifier(request) if verb in routes.ON_ISSUE else None, None
        match given:
            case models.Answer() | models.NewComment():
                text = answer_text(given)
            case models.Move():
                text = move_target(given)
            case _:
                pass
        return await self._operator.act(verb, name, text)

    async def _change_outbox(self, verb: str, _: Request, chosen: Document) -> Document:
        assert isinstance(chosen, models.JobChoice)  # noqa: S101 - the row says so
        return await self._operator.change_outbox(verb, chosen.key)

    async def _feedback(self, request: Request, given: Document) -> Document | None:
        assert isinstance(given, models.Stars)  # noqa: S101 - the row says so
        may_teach = self._access.may_order(request)
        return await self._operator.feedback(identifier(request), rating(given), may_teach=may_teach)

    async def _openapi(self, _: Request, __: Document) -> Response:
        return encoded(await to_thread.run_sync(description))  # the first call is slow

    async def _metrics(self, _: Request, __: Document) -> Response:
        scraped = await self._operator.metrics()
        return Response(scraped.content, headers={"content-type": scraped.content_type})

    async def _health(self, _: Request, __: Document) -> Document:
        return Health()


async def _answered(row: routes.Resource[Document], ask: Answer, request: Request) -> Response:
    given = await body_of(request, row.body) if row.verb == "POST" else models.EmptyBody()
    found = await ask(request, given)
    if isinstance(found, Response):
        return found
    if found is None:
        message = "the daemon, its journal and the tracker have no issue of this identifier"
        raise RequestError(404, "issue_not_found", message)
    return answer(found, status=row.status)


def _pages(operator: Operator, access: Access, notices: Notices) -> Mapping[str, Handler]:
    """The pages, their files and their forms, by the names of the rows."""
    pages, skills = Pages(operator), SkillPages(operator, access, notices)
    forms, change = Forms(operator, access, notices), ChangePages(operator, access, notices)
    new_issue_pages = NewIssuePages(operator, access, notices)
    once = Once(access)
    posted: dict[str, Handler] = {
        "create_issue_form": new_issue_pages.create,
        "feedback_form": forms.feedback,
        "selected_form": forms.act_on_selected,
        **{
            f"{verb}_form": partial(forms.act, verb)
            for verb in (*routes.ON_ISSUE, *routes.ON_DAEMON, routes.REFRESH.name)
        },
        "review_draft_form": change.draft,
        "review_form": change.decide,
    }
    edits: dict[str, Handler] = {
        **{f"library_{verb}_form": partial(skills.change, verb) for verb in routes.EDITS},
        "library_save_form": skills.save,
    }
    return {
        **{name: partial(once.handle, handler, MAX_ANSWER_BYTES) for name, handler in posted.items()},
        **{name: partial(once.handle, handler, MAX_EDIT_BYTES) for name, handler in edits.items()},
        "board_page": _page(pages.board),
        "issue_page": _page(pages.issue),
        "prompt_page": _page(pages.prompt),
        "diff_page": change.show,
        "work_page": _page(pages.work),
        "history_page": _page(pages.history),
        "skills_page": _page(skills.skills),
        "new_skill_page": _page(skills.new),
        "assignments_page": _page(skills.assignments),
        "proposals_page": _page(skills.proposals),
        "proposal_page": _page(skills.proposal),
        "skill_page": _page(skills.skill),
        "edit_skill_page": _page(skills.edit),
        "versions_page": _page(skills.versions),
        "system_page": _page(pages.system),
        "confirm_page": _page(pages.confirm),
        "new_issue_page": _page(new_issue_pages.new),
        "artifact": pages.artifact,
        "skip_feedback_form": forms.skip_feedback,
        "typed": show_typed,
        "keep_text_form": keep_typed,
        "library_check_form": skills.check,
    }


def sign_in_pages(access: Access) -> Mapping[str, Handler]:
    """The handlers of every application with pages: signing in and out, colours, files; by row name."""
    forms = SignInForms(access)
    return {
        "theme": Pages.theme,
        "sign_in_script": partial(_script, SIGN_IN_SCRIPT),
        "return_script": partial(_script, RETURN_SCRIPT),
        "asset": Pages.asset,
        "sign_in_page": forms.show_sign_in,
        "sign_in_form": forms.sign_in,
        "sign_out_form": forms.sign_out,
    }


async def _script(content: str, _: Request) -> Response:
    return Response(content, media_type="text/javascript")


def _webhook_handler(receiver: WebhookReceiver) -> Handler:
    reading = anyio.Semaphore(_WEBHOOKS_AT_ONCE)

    async def handler(request: Request) -> Response:
        sender, headers = str(request.path_params["sender"]), dict(request.headers)
        answered = receiver.check_headers(sender, headers)
        if answered is None:
            async with reading:
                body = await read_body(request, MAX_WEBHOOK_BYTES)
            answered = receiver.receive(sender, headers, body)
        response = answer(WebhookAnswer(status=answered.status), status=answered.code)
        response.headers.update(answered.headers)
        return response

    return handler


def _resource(handlers: Mapping[str, Handler]) -> "_AnyMethod":
    """A path with its methods. GET also serves HEAD, and OPTIONS lists the methods."""
    allowed = {*handlers, "OPTIONS"} | ({"HEAD"} if "GET" in handlers else set())
    allow = {"allow": ", ".join(sorted(allowed))}

    async def endpoint(request: Request) -> Response:
        method = request.method
        if method == "OPTIONS":
            return Response(status_code=204, headers=allow)
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise RequestError(405, "method_not_allowed", f"allowed: {allow['allow']}", headers=allow)
        response = await handler(request)
        if method == "HEAD":
            response.body = b""  # the header keeps its length
        return response

    return _AnyMethod(endpoint)


def _page(read: Callable[[Request], Awaitable[Content]]) -> Handler:
    return partial(respond, read=read)


class _AnyMethod:
    """An endpoint that Starlette does not restrict to methods, because it is not a function."""

    def __init__(self, endpoint: Handler) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


# --- errors ----------------------------------------------------------------------------------------------


async def _on_error(request: Request, error: Exception) -> Response:
    match error:
        case RequestError():
            return await _refused(request, error, request.app.state.access)
        case HTTPException():
            return refusal(404, "not_found", "there is no such route")
        case ApiError():
            at = utc_text(utc_now()) if isinstance(error, UnavailableError) else UNSET
            return refusal(error.status, error.code, error.message, hint=error.hint, generated_at=at)
        case SymphonyError(failure=failure):  # concerns the issue, not the request
            return refusal(409, failure.category.value, failure.message, hint=failure.hint)
    raise error


async def _refused(request: Request, error: RequestError, access: Access) -> Response:
    acts = form_path(request.scope["path"]).startswith(f"{routes.ACTIONS_PATH}/")
    if acts and error.code in _SIGN_IN_LOST and request.method == "POST":
        fields = await sent_fields(request)
        if any(map(fields.get, TYPED)):
            return unsent_page(error, request.scope, fields, csrf=access.csrf(request) or "")
    if error.status_code in _ACCESS_REFUSED and wants_page(request.headers):
        path = request.scope["path"] if request.method == "GET" else "/"
        return refusal_page(error, f"{root_of(request.scope)}{path}")
    return refusal(error.status_code, error.code, error.message, headers=error.headers)


async def _on_crash(_: Request, error: Exception) -> Response:
    _log.error("request_failed", exc_info=error)
    return refusal(500, "internal", "an internal error; the log of the daemon has the details")


# --- around all routes -----------------------------------------------------------------------------------


class _Guard:
    """Middleware: checks access, matches raw paths, adds missing security headers, and lets no exception out.

    Webhooks are exempt from the access rule: they come through a proxy without a token, and their signature
    proves the sender.
    """

    def __init__(self, app: Starlette, access: Access, receiver: WebhookReceiver | None) -> None:
        self._app = app
        self._access = access
        self._receiver = receiver

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        raw = scope.get("raw_path")
        path = scope["path"] if raw is None else raw.partition(b"?")[0].decode("ascii", "replace")
        scope = self._access.below_root({**scope, "path": path})
        path, root = scope["path"], root_of(scope)
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                location = headers.get("location", "")
                if location.startswith("/") and not location.startswith(f"{root}/"):
                    headers["location"] = f"{root}{location}"
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)  # pages have their own policy
            await send(message)

        try:
            check_head(scope)
            if not self._is_webhook(scope["method"], path):
                self._access.check(HTTPConnection(scope))
            await self._app(scope, receive, send_with_headers)
        except RequestError as error:
            response = await _refused(Request(scope, receive), error, self._access)
            await response(scope, receive, send_with_headers)
        except Exception:  # noqa: BLE001 - starlette raises again what `_on_crash` answered and logged
            if not started:
                _log.exception("request_failed")

    def _is_webhook(self, method: str, path: str) -> bool:
        place, receiver = routes.WEBHOOKS_PATH, self._receiver
        return receiver is not None and method == "POST" and path.startswith(place) and receiver.enabled
