"""The HTTP application: routes, methods, errors. One is made for each way in, with its rule of access.

Paths are matched before they are percent-decoded, so that an identifier may hold a slash (`%2F`) and a fixed
route cannot be shadowed. A route answers 405 for methods it does not have, however other routes look.
"""

from collections.abc import Awaitable, Callable

import anyio
import structlog
from anyio import to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from symphony.api.access import Access
from symphony.api.history import utc_now
from symphony.api.http import (
    SECURITY_HEADERS,
    RequestError,
    answer,
    answer_text,
    check_head,
    delivered,
    empty_object,
    encoded,
    identifier,
    refusal,
    selection,
)
from symphony.api.interface import (
    DAEMON_ACTIONS,
    ISSUE_ACTIONS,
    ConflictError,
    Operator,
    UnavailableError,
    WebhookDeniedError,
    WebhookReceiver,
)
from symphony.api.models import Delivered, Health, Issue, Prompt, Verb, utc_text
from symphony.api.openapi import description
from symphony.domain import SymphonyError

HEALTH_PATH = "/healthz"
HOOKS_PATH = "/webhooks/"
_DELIVERIES = 8
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_log = structlog.get_logger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def create_app(operator: Operator, access: Access, hooks: WebhookReceiver | None = None) -> ASGIApp:
    """The application of one way in; without `hooks`, trackers may tell nothing."""
    routes = [
        Route("/api/v1/state", _resource(GET=_state(operator))),
        Route("/api/v1/refresh", _resource(POST=_refresh(operator))),
        Route("/api/v1/openapi.json", _resource(GET=_openapi)),
        Route(HEALTH_PATH, _resource(GET=_health)),
        *(
            Route(f"/api/v1/control/{verb}", _resource(POST=_act(operator, access, verb)))
            for verb in DAEMON_ACTIONS
        ),
        Route("/api/v1/{identifier}", _resource(GET=_issue(operator.issue))),
        Route("/api/v1/{identifier}/prompt", _resource(GET=_issue(operator.prompt))),
        *(
            Route(f"/api/v1/{{identifier}}/{verb}", _resource(POST=_act_on(operator, access, verb)))
            for verb in ISSUE_ACTIONS
        ),
    ]
    if hooks is not None:
        routes.append(Route(f"{HOOKS_PATH}{{tracker}}", _resource(POST=_hook(hooks))))
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _on_refused,
            ConflictError: _on_unfit,
            UnavailableError: _on_unavailable,
            WebhookDeniedError: _on_denied,
            SymphonyError: _on_failure,
            Exception: _on_crash,
        },
    )
    app.router.redirect_slashes = False
    return _Door(app, access, hooks)


# --- routes ----------------------------------------------------------------------------------------------


def _resource(**handlers: Handler) -> "_AnyMethod":
    """One path with its methods; GET brings HEAD, and OPTIONS tells what there is."""
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
            response.body = b""  # its length stays in the header
        return response

    return _AnyMethod(endpoint)


class _AnyMethod:
    """An endpoint that starlette does not wrap with a list of methods of its own."""

    def __init__(self, endpoint: Handler) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        response = await self._endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def _state(operator: Operator) -> Handler:
    async def handler(request: Request) -> Response:
        return answer(await operator.state(selection(request)))

    return handler


def _issue(ask: Callable[[str], Awaitable[Issue | Prompt | None]]) -> Handler:
    async def handler(request: Request) -> Response:
        document = await ask(identifier(request))
        if document is None:
            raise _unknown()
        return answer(document)

    return handler


def _unknown() -> RequestError:
    message = "neither the daemon nor its journal knows an issue of this identifier"
    return RequestError(404, "issue_not_found", message)


def _refresh(operator: Operator) -> Handler:
    async def handler(request: Request) -> Response:
        await empty_object(request)
        return answer(operator.refresh(), status=202)

    return handler


def _act(operator: Operator, access: Access, verb: str) -> Handler:
    async def handler(request: Request) -> Response:
        access.check_order(request.headers)
        await empty_object(request)
        return _accepted(await operator.act(verb, None))

    return handler


def _act_on(operator: Operator, access: Access, verb: str) -> Handler:
    async def handler(request: Request) -> Response:
        access.check_order(request.headers)
        name = identifier(request)
        text = None
        if verb == "answer":
            text = await answer_text(request)
        else:
            await empty_object(request)
        return _accepted(await operator.act(verb, name, text))

    return handler


def _accepted(done: Verb | None) -> Response:
    if done is None:
        raise _unknown()
    return answer(done, status=202)


def _hook(hooks: WebhookReceiver) -> Handler:
    reading = anyio.Semaphore(_DELIVERIES)

    async def handler(request: Request) -> Response:
        tracker, headers = str(request.path_params["tracker"]), dict(request.headers)
        answered = hooks.check_headers(tracker, headers)
        if answered is None:
            async with reading:
                body = await delivered(request)
            answered = hooks.receive(tracker, headers, body)
        response = answer(Delivered(status=answered.status), status=answered.code)
        response.headers.update(answered.headers)
        return response

    return handler


async def _openapi(_: Request) -> Response:
    return encoded(await to_thread.run_sync(description))  # slow to make, once


async def _health(_: Request) -> Response:
    return answer(Health())


# --- errors ----------------------------------------------------------------------------------------------


async def _on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - starlette calls it with nothing else
    if isinstance(error, RequestError):
        return refusal(error.status_code, error.code, error.message, headers=error.headers)
    return refusal(404, "not_found", "there is no such route")


async def _on_unfit(_: Request, error: Exception) -> Response:
    assert isinstance(error, ConflictError)  # noqa: S101 - as above
    return refusal(409, error.code, error.message, hint=error.hint)


async def _on_unavailable(_: Request, error: Exception) -> Response:
    assert isinstance(error, UnavailableError)  # noqa: S101 - as above
    return refusal(503, error.code, error.message, generated_at=utc_text(utc_now()))


async def _on_denied(_: Request, error: Exception) -> Response:
    assert isinstance(error, WebhookDeniedError)  # noqa: S101 - as above
    return refusal(error.status, error.code, error.message)


async def _on_failure(_: Request, error: Exception) -> Response:
    """What a dispatch would fail of: a fact about the issue, not about the request."""
    assert isinstance(error, SymphonyError)  # noqa: S101 - as above
    failure = error.failure
    return refusal(409, failure.category.value, failure.message, hint=failure.hint)


async def _on_crash(_: Request, error: Exception) -> Response:
    _log.error("request_failed", exc_info=error)
    return refusal(500, "internal", "this is our fault; the log of the daemon says more")


# --- the door --------------------------------------------------------------------------------------------


class _Door:
    """Around everything: access, raw paths, headers. Nothing that is raised inside gets out.

    A delivery of a tracker proves itself by its signature: it comes by a proxy, and without a token.
    """

    def __init__(self, app: Starlette, access: Access, hooks: WebhookReceiver | None) -> None:
        self._app = app
        self._access = access
        self._hooks = hooks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        raw = scope.get("raw_path")
        path = scope["path"] if raw is None else raw.partition(b"?")[0].decode("ascii", "replace")
        began = False

        async def sending(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                secure = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *secure]}
            await send(message)

        scope = {**scope, "path": path}
        try:
            check_head(scope)
            if path != HEALTH_PATH and not self._delivers(scope["method"], path):
                self._access.check(Headers(scope=scope), writes=scope["method"] not in _READS)
            await self._app(scope, receive, sending)
        except RequestError as error:
            response = refusal(error.status_code, error.code, error.message, headers=error.headers)
            await response(scope, receive, sending)
        except Exception:  # noqa: BLE001 - starlette raises again what it has answered and we have logged
            if not began:
                _log.exception("request_failed")

    def _delivers(self, method: str, path: str) -> bool:
        hooks = self._hooks
        return hooks is not None and method == "POST" and path.startswith(HOOKS_PATH) and hooks.enabled
