"""The HTTP application: routes, methods and errors. Each listener has its own, with its access rule.

Paths are matched before they are percent-decoded: an identifier may contain a slash (`%2F`), and no
identifier hides a fixed route. A route answers 405 for methods that it does not have.
"""

from collections.abc import Awaitable, Callable
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
from symphony.api.access import (
    ACTIONS_PATH,
    ASSETS_PATH,
    REFRESH_PATH,
    SIGN_IN_PATH,
    SIGN_OUT_PATH,
    Access,
    Caller,
    root_of,
)
from symphony.api.forms import FORM_ACTIONS, RETURN_SCRIPT, SIGN_IN_SCRIPT, Forms, Notices, refusal_page
from symphony.api.history import utc_now
from symphony.api.http import (
    MAX_WEBHOOK_BYTES,
    SECURITY_HEADERS,
    RequestError,
    answer,
    answer_text,
    check_head,
    empty_object,
    encoded,
    identifier,
    identifiers,
    move_target,
    number,
    owed_key,
    rating,
    read_body,
    refusal,
    run_query,
    selection,
    wants_page,
)
from symphony.api.interface import (
    DAEMON_ACTIONS,
    ISSUE_ACTIONS,
    OUTBOX_ACTIONS,
    ApiError,
    OpenPort,
    Operator,
    UnavailableError,
    WebhookReceiver,
)
from symphony.api.library import EDITS
from symphony.api.library_routes import LIBRARY_PATH, LibraryRoutes
from symphony.api.live import Changes
from symphony.api.models import Delivered, Document, Health, Link, utc_text
from symphony.api.openapi import description
from symphony.api.pages.responding import Content, respond
from symphony.api.pages.routes import SYSTEM_PATH, Pages
from symphony.api.pages.skills_routes import SKILLS_PATH, SkillPages
from symphony.api.sign_in import LINK_S
from symphony.domain import MAX_COUNT, SymphonyError
from symphony.journal.transcripts import MAX_PAGE

HEALTH_PATH: Final = "/healthz"
METRICS_PATH: Final = "/metrics"
WEBHOOKS_PATH: Final = "/webhooks/"
OUTBOX_PATH: Final = "/api/v1/control/outbox"
DEFAULT_PAGE: Final = 200
"""How many entries of a transcript an answer has by default."""
_WEBHOOKS_AT_ONCE: Final = 8
_ACCESS_REFUSED: Final = frozenset({401, 403})
_log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    operator: Operator,
    access: Access,
    receiver: WebhookReceiver | None = None,
    *,
    changes: Changes,
    open_port: OpenPort,
) -> ASGIApp:
    """The application of one listener; without a `receiver` there is no route for webhooks."""
    handlers, pages = _Handlers(operator, access, changes, open_port), Pages(operator)
    notices = Notices()
    forms = Forms(operator, access, notices)
    library, skills = LibraryRoutes(operator), SkillPages(operator, access, notices)
    routes = [
        Route("/", _page(pages.board)),
        Route("/issues/{identifier}", _page(pages.issue)),
        Route("/issues/{identifier}/prompt", _page(pages.prompt)),
        Route("/issues/{identifier}/diff", _page(pages.diff)),
        Route("/history", _page(pages.history)),
        Route(SKILLS_PATH, _page(skills.skills)),
        Route(f"{SKILLS_PATH}.json", _resource(GET=skills.skills_json)),
        Route(f"{SKILLS_PATH}/new", _page(skills.new)),
        Route(f"{SKILLS_PATH}/assignments", _page(skills.assignments)),
        Route(f"{SKILLS_PATH}/proposals", _page(skills.proposals)),
        Route(f"{SKILLS_PATH}/proposals/{{id}}", _page(skills.proposal)),
        Route(f"{SKILLS_PATH}/library/{{name}}", _page(skills.skill)),
        Route(f"{SKILLS_PATH}/library/{{name}}/edit", _page(skills.edit)),
        Route(f"{SKILLS_PATH}/library/{{name}}/diff", _page(skills.versions)),
        Route(f"{ACTIONS_PATH}library/check", _resource(POST=skills.check)),
        Route(f"{ACTIONS_PATH}library/save", _resource(POST=skills.save)),
        *(
            Route(f"{ACTIONS_PATH}library/{verb}", _resource(POST=partial(skills.change, verb)))
            for verb in EDITS
            if verb != "save"
        ),
        Route(SYSTEM_PATH, _page(pages.system)),
        Route(f"{SYSTEM_PATH}.json", _resource(GET=pages.system_json)),
        Route("/theme", _resource(GET=pages.theme)),
        Route(f"{ASSETS_PATH}sign-in.js", _resource(GET=partial(_script, SIGN_IN_SCRIPT))),
        Route(f"{ASSETS_PATH}return.js", _resource(GET=partial(_script, RETURN_SCRIPT))),
        Route(f"{ASSETS_PATH}{{name}}", _resource(GET=pages.asset)),
        Route(SIGN_IN_PATH, _resource(GET=forms.show_sign_in, POST=forms.sign_in)),
        Route(SIGN_OUT_PATH, _resource(POST=forms.sign_out)),
        Route(f"{ACTIONS_PATH}feedback", _resource(POST=forms.feedback)),
        Route(f"{ACTIONS_PATH}skip-feedback", _resource(POST=forms.skip_feedback)),
        *(Route(f"{ACTIONS_PATH}{verb}", _resource(POST=partial(forms.act, verb))) for verb in FORM_ACTIONS),
        Route("/api/v1/state", _resource(GET=handlers.state)),
        Route("/api/v1/runs", _resource(GET=handlers.runs)),
        Route("/api/v1/rehearsal", _resource(GET=handlers.rehearsal)),
        Route("/api/v1/events", _resource(GET=handlers.events)),
        Route(REFRESH_PATH, _resource(POST=handlers.refresh)),
        Route("/api/v1/control/open", _resource(POST=handlers.open_page)),
        Route("/api/v1/openapi.json", _resource(GET=handlers.openapi)),
        Route(HEALTH_PATH, _resource(GET=handlers.health)),
        Route(METRICS_PATH, _resource(GET=handlers.metrics)),
        *(
            Route(f"/api/v1/control/{verb}", _resource(POST=partial(handlers.act_on_daemon, verb)))
            for verb in DAEMON_ACTIONS
        ),
        Route(OUTBOX_PATH, _resource(GET=handlers.outbox)),
        *(
            Route(f"{OUTBOX_PATH}/{verb}", _resource(POST=partial(handlers.change_outbox, verb)))
            for verb in OUTBOX_ACTIONS
        ),
        Route(f"{LIBRARY_PATH}/skills", _resource(GET=library.skills)),
        Route(f"{LIBRARY_PATH}/skills/{{name}}", _resource(GET=library.skill)),
        Route(f"{LIBRARY_PATH}/skills/{{name}}/diff", _resource(GET=library.diff)),
        Route(f"{LIBRARY_PATH}/assignments", _resource(GET=library.assignments)),
        Route(f"{LIBRARY_PATH}/proposals", _resource(GET=library.proposals)),
        Route(f"{LIBRARY_PATH}/proposals/{{id}}", _resource(GET=library.proposal)),
        Route(f"{LIBRARY_PATH}/check", _resource(POST=library.check)),
        *(Route(f"{LIBRARY_PATH}/{verb}", _resource(POST=partial(library.change, verb))) for verb in EDITS),
        Route("/api/v1/{identifier}", _resource(GET=handlers.issue)),
        Route("/api/v1/{identifier}/prompt", _resource(GET=handlers.prompt)),
        Route("/api/v1/{identifier}/transcript", _resource(GET=handlers.transcript)),
        Route("/api/v1/{identifier}/feedback", _resource(POST=handlers.feedback)),
        *(
            Route(f"/api/v1/{{identifier}}/{verb}", _resource(POST=partial(handlers.act_on_issue, verb)))
            for verb in ISSUE_ACTIONS
        ),
    ]
    if receiver is not None:
        routes.append(Route(f"{WEBHOOKS_PATH}{{sender}}", _resource(POST=_webhook_handler(receiver))))
    errors = (HTTPException, ApiError, SymphonyError)
    app = Starlette(
        routes=routes, exception_handlers={**dict.fromkeys(errors, _on_error), Exception: _on_crash}
    )
    app.router.redirect_slashes = False
    app.state.access, app.state.notices = access, notices  # for the forms and notices of pages
    return _Guard(app, access, receiver)


# --- routes ----------------------------------------------------------------------------------------------


class _Handlers:
    """The handlers of the API's routes."""

    def __init__(self, operator: Operator, access: Access, changes: Changes, open_port: OpenPort) -> None:
        self._operator = operator
        self._access = access
        self._changes = changes
        self._open_port = open_port

    async def state(self, request: Request) -> Response:
        return answer(await self._operator.state(selection(request)))

    async def runs(self, request: Request) -> Response:
        return answer(await self._operator.runs(run_query(request)))

    async def rehearsal(self, request: Request) -> Response:
        return answer(await self._operator.rehearse(identifiers(request)))

    async def issue(self, request: Request) -> Response:
        return answer(_known(await self._operator.issue(identifier(request))))

    async def prompt(self, request: Request) -> Response:
        phase = request.query_params.get("phase")
        return answer(_known(await self._operator.prompt(identifier(request), phase)))

    async def transcript(self, request: Request) -> Response:
        run = request.query_params.get("run") or None
        after = number(request, "after", at_most=MAX_COUNT)
        limit = number(request, "limit", at_most=MAX_PAGE)
        document = await self._operator.transcript(identifier(request), run, after, limit or DEFAULT_PAGE)
        return answer(_known(document))

    async def refresh(self, request: Request) -> Response:
        await empty_object(request)
        return answer(self._operator.refresh(), status=202)

    async def events(self, request: Request) -> Response:
        return self._changes.open_stream(
            request.headers.get("last-event-id") or request.query_params.get("after")
        )

    async def open_page(self, request: Request) -> Response:
        caller = self._access.caller(request)
        if caller is Caller.BROWSER:  # it would outlive its own cookie
            raise RequestError(403, "forbidden", "a signed-in browser cannot sign in others")
        await empty_object(request)
        address = await self._open_port()
        if caller is Caller.OPERATOR:  # who knows from where this daemon can be reached
            address = f"http://{request.headers.get('host', '')}"
        return answer(
            Link(
                url=f"{address}{SIGN_IN_PATH}?link={self._access.sign_in.new_link()}",
                address=address,
                expires_at=utc_text(utc_now() + timedelta(seconds=LINK_S)),
            )
        )

    async def act_on_daemon(self, verb: str, request: Request) -> Response:
        await empty_object(request)
        return answer(_known(await self._operator.act(verb, None)), status=202)

    async def outbox(self, _: Request) -> Response:
        return answer(await self._operator.outbox())

    async def change_outbox(self, verb: str, request: Request) -> Response:
        return answer(await self._operator.change_outbox(verb, await owed_key(request)))

    async def act_on_issue(self, verb: str, request: Request) -> Response:
        name = identifier(request)
        text = None
        if verb == "answer":
            text = await answer_text(request)
        elif verb == "move":
            text = await move_target(request)
        else:
            await empty_object(request)
        return answer(_known(await self._operator.act(verb, name, text)), status=202)

    async def feedback(self, request: Request) -> Response:
        name, given = identifier(request), await rating(request)
        may_teach = self._access.may_order(request)
        return answer(_known(await self._operator.feedback(name, given, may_teach=may_teach)), status=202)

    async def openapi(self, _: Request) -> Response:
        return encoded(await to_thread.run_sync(description))  # the first call is slow

    async def metrics(self, _: Request) -> Response:
        scraped = await self._operator.metrics()
        return Response(scraped.content, headers={"content-type": scraped.content_type})

    async def health(self, _: Request) -> Response:
        return answer(Health())


async def _script(content: str, _: Request) -> Response:
    return Response(content, media_type="text/javascript")


def _known(document: Document | None) -> Document:
    if document is None:
        message = "neither the daemon nor its journal knows an issue of this identifier"
        raise RequestError(404, "issue_not_found", message)
    return document


def _webhook_handler(receiver: WebhookReceiver) -> Handler:
    reading = anyio.Semaphore(_WEBHOOKS_AT_ONCE)

    async def handler(request: Request) -> Response:
        sender, headers = str(request.path_params["sender"]), dict(request.headers)
        answered = receiver.check_headers(sender, headers)
        if answered is None:
            async with reading:
                body = await read_body(request, MAX_WEBHOOK_BYTES)
            answered = receiver.receive(sender, headers, body)
        response = answer(Delivered(status=answered.status), status=answered.code)
        response.headers.update(answered.headers)
        return response

    return handler


def _resource(**handlers: Handler) -> "_AnyMethod":
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


def _page(read: Callable[[Request], Awaitable[Content]]) -> "_AnyMethod":
    return _resource(GET=partial(respond, read=read))


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
            return _refused(request, error)
        case HTTPException():
            return refusal(404, "not_found", "there is no such route")
        case ApiError():
            at = utc_text(utc_now()) if isinstance(error, UnavailableError) else UNSET
            return refusal(error.status, error.code, error.message, hint=error.hint, generated_at=at)
        case SymphonyError(failure=failure):  # of a dispatch or a move: about the issue, not the request
            return refusal(409, failure.category.value, failure.message, hint=failure.hint)
    raise error


def _refused(request: Request, error: RequestError) -> Response:
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

    A webhook is exempt from the access rule: it comes through a proxy without a token, and its signature
    proves where it is from.
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
                    headers.setdefault(name, value)  # a page has a policy of its own
            await send(message)

        try:
            check_head(scope)
            if path != HEALTH_PATH and not self._is_webhook(scope["method"], path):
                self._access.check(HTTPConnection(scope))
            await self._app(scope, receive, send_with_headers)
        except RequestError as error:
            response = _refused(Request(scope), error)
            await response(scope, receive, send_with_headers)
        except Exception:  # noqa: BLE001 - starlette raises again what `_on_crash` answered and logged
            if not started:
                _log.exception("request_failed")

    def _is_webhook(self, method: str, path: str) -> bool:
        receiver = self._receiver
        return (
            receiver is not None and method == "POST" and path.startswith(WEBHOOKS_PATH) and receiver.enabled
        )
