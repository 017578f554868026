"""Handles the HTML forms of pages: signing in and out, and operator actions.

An action is a form with the fields `csrf` (`Access.csrf`), `issue`, `text` or `state`, and `next`, posted to
`/actions/<verb>`. The answer always redirects to `next` with `?notice=<id>`, and the page there shows the
notice with that id. The address does not contain the text of a notice, so no link can forge one.

An action on several issues is posted to `/actions/selected` with the field `verb`, `issue` for each, and for
a move one `state` for all, or one for each.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from html import escape
from math import inf
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import anyio
import structlog
from anyio import CapacityLimiter
from cachetools import FIFOCache
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from symphony.api.access import Access, Caller, root_of
from symphony.api.http import MAX_ANSWER_BYTES, RequestError, form_fields, form_pairs, small_page
from symphony.api.interface import MAX_ANSWER_CHARS, MAX_STATE_CHARS, ApiError, Operator
from symphony.api.models import Stars, Verb, feedback_effect
from symphony.api.routes import ON_ISSUE, ON_SELECTED, SIGN_IN_PATH
from symphony.api.sign_in import LinkRefusedError
from symphony.api.typed import MAX_CHARS, TypedTexts
from symphony.characters import visible
from symphony.domain import SymphonyError, plain_text, plural

SIGN_IN_SCRIPT: Final = "document.forms[0].submit();\n"
RETURN_SCRIPT: Final = """\
const root = localStorage.getItem("root");
if (root && !location.pathname.startsWith("/~"))
  location.replace(root + location.pathname.slice(1) + location.search + location.hash);
"""
"""Redirects a signed-in browser from the address in a notification to the address below its own path.

An earlier page stored the path: `localStorage` is separate for each port.
"""
MAX_SELECTED: Final = 100
"""How many issues one action can have at most."""
_AT_ONCE: Final = 4
_MAX_FIELDS: Final = 32
_DONE: Final = {"retry": "retried", "unblock": "unblocked", "stop": "stopped", "move": "moved"}
_UNDONE_BY: Final = {
    "stop": ("Undo: retry", "retry"),
    "pause": ("Undo: resume", "resume"),
    "resume": ("Undo: pause", "pause"),
}
_MAX_NOTICES: Final = 64
_SEE_OTHER: Final = 303
_SKIPPED_COOKIE: Final = "symphony_no_feedback"
_SKIPPED_S: Final = 365 * 86_400
_MAX_SKIPPED: Final = 200
_KEY_CHARS: Final = 12
_MAX_PLACE_CHARS: Final = 500
_MAX_BROWSERS: Final = 64
_TWICE_S: Final = 3.0
TYPED: Final = ("title", "text", "message", "comment", "body", "file")
"""The fields with text that a person typed."""
_WITH_TEXT: Final = frozenset({"answer", "comment", "move"})
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The order that undoes another one.

    Attributes:
        verb: a verb of `ON_SELECTED`, or of the daemon.
        label: the text of the button.
        issues: the identifiers, each with the target state of a move, which other verbs ignore.
    """

    verb: str
    label: str
    issues: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FormResult:
    """The result of a form, for the page that is shown next.

    Attributes:
        ok: whether the action was carried out.
        message: what happens now, or why nothing happens; untrusted text.
        hint: what to do instead, or `None`.
        unsent: the person's text, if it was not used.
        issue: the issue of this result, if it is one of several.
        parts: the results for several issues.
        undo: the order that undoes the action, if there is one.
    """

    ok: bool
    message: str
    hint: str | None = None
    unsent: str = ""
    issue: str | None = None
    parts: tuple["FormResult", ...] = ()
    undo: Undo | None = None

    @classmethod
    def of_error(cls, error: ApiError | SymphonyError) -> "FormResult":
        """The result of a failed action."""
        why = error.failure if isinstance(error, SymphonyError) else error
        return cls(ok=False, message=why.message, hint=why.hint)


class Notices:
    """The latest notices by id."""

    def __init__(self) -> None:
        self._notices: FIFOCache[str, FormResult] = FIFOCache(_MAX_NOTICES)

    def put(self, notice: FormResult) -> str:
        """Store a notice and return its id."""
        key = secrets.token_urlsafe(9)
        self._notices[key] = notice
        return key

    def of(self, request: Request) -> FormResult | None:
        """The notice for a page; `None` if there is none or it was dropped."""
        return self._notices.get(request.query_params.get("notice", ""))


def undo_of(done: Verb) -> Undo | None:
    """The order that undoes an action; `None` if there is none, or if nothing has changed."""
    issue = done.issue_identifier or ""
    if done.changed and done.verb in _UNDONE_BY:
        label, verb = _UNDONE_BY[done.verb]
        return Undo(verb=verb, label=label, issues=((issue, ""),) if issue else ())
    if done.verb == "move" and done.before is not None:
        return Undo(verb="move", label="Undo: move back", issues=((issue, done.before),))
    return None


def summed_up(verb: str, results: Sequence[FormResult]) -> FormResult:
    """One notice for several issues, with failed ones first."""
    failed = sum(not one.ok for one in results)
    undone = [one.undo for one in results if one.undo is not None]
    undo = None
    if undone:
        label = f"{undone[0].label} ({len(undone)})" if len(results) > 1 else undone[0].label
        undo = replace(undone[0], label=label, issues=tuple(pair for one in undone for pair in one.issues))
    done = len(results) - failed
    return FormResult(
        ok=not failed,
        message=f"{_DONE[verb]} {done} of {plural(len(results), 'issue')}",
        parts=tuple(sorted(results, key=lambda one: one.ok)),
        undo=undo,
    )


class Forms:
    """The handlers of posted forms."""

    def __init__(self, operator: Operator, access: Access, notices: Notices) -> None:
        self._operator = operator
        self._access = access
        self._notices = notices

    async def act(self, verb: str, request: Request) -> Response:
        """Carry out an operator's action, and go to the page `next`."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        try:
            text = fields.get("state" if verb == "move" else "text", "")
            notice = await self._carry_out(verb, fields.get("issue", ""), text)
        except (ApiError, SymphonyError) as error:
            notice = FormResult.of_error(error)
        if notice.ok:
            forget_typed(request, f"{verb}:{fields.get('issue', '')}")
        return self._go_on(fields, notice, typed="text")

    async def act_on_selected(self, request: Request) -> Response:
        """Carry out one action on several issues, each with its own result, and go to `next`."""
        pairs = await form_pairs(request, MAX_ANSWER_BYTES, 2 * MAX_SELECTED + _MAX_FIELDS)
        fields = dict(pairs)
        self._access.check_form(request, fields.get("csrf", ""))
        verb, (issues, states) = (
            fields.get("verb", ""),
            ([value for name, value in pairs if name == wanted] for wanted in ("issue", "state")),
        )
        if len(states) <= 1:
            states = (states or [""]) * len(issues)
        if verb not in ON_SELECTED or not 0 < len(issues) <= MAX_SELECTED or len(states) != len(issues):
            message = f"select 1 to {MAX_SELECTED} issues, and one of {', '.join(ON_SELECTED)}"
            raise RequestError(400, "bad_request", message)
        orders = dict(zip(issues, states, strict=True))
        results: dict[str, FormResult] = {}
        limiter = CapacityLimiter(_AT_ONCE)

        async def carry_out(issue: str, state: str) -> None:
            async with limiter:
                try:
                    notice = await self._carry_out(verb, issue, state)
                except (ApiError, SymphonyError) as error:
                    notice = FormResult.of_error(error)
            results[issue] = replace(notice, issue=issue)

        async with anyio.create_task_group() as tasks:
            for issue, state in orders.items():
                tasks.start_soon(carry_out, issue, state)
        notice = summed_up(verb, [results[issue] for issue in orders])
        return see_other(local_path(fields.get("next", "")), notice=self._notices.put(notice))

    async def feedback(self, request: Request) -> Response:
        """Store feedback: the fields `issue`, `stars`, `comment`, and `learn` if skills may learn from it."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        try:
            notice = await self._rate(fields)
        except (ApiError, SymphonyError) as error:
            notice = FormResult.of_error(error)
        if notice.ok:
            forget_typed(request, f"feedback:{fields.get('issue', '')}")
        return self._go_on(fields, notice, typed="comment")

    def _go_on(self, fields: Mapping[str, str], notice: FormResult, *, typed: str) -> Response:
        """Redirect to the page `next`, which shows the notice and the typed text if it was not used."""
        if not notice.ok:
            notice = replace(notice, unsent=fields.get(typed, "").replace("\r\n", "\n"))
        return see_other(local_path(fields.get("next", "")), notice=self._notices.put(notice))

    async def _rate(self, fields: Mapping[str, str]) -> FormResult:
        stars, comment = fields.get("stars", ""), fields.get("comment", "")
        if stars not in {"1", "2", "3", "4", "5"}:
            return FormResult(ok=False, message="choose one to five stars")
        if len(comment) > MAX_ANSWER_CHARS:
            return FormResult(ok=False, message=f"a comment has at most {MAX_ANSWER_CHARS} characters")
        comment = plain_text(comment.replace("\r\n", "\n")).strip()
        given = Stars(stars=int(stars), comment=comment, learn="learn" in fields)
        stored = await self._operator.feedback(fields.get("issue", ""), given, may_teach=True)
        if stored is None:
            return FormResult(ok=False, message="the daemon does not know this issue any more")
        return FormResult(ok=True, message=feedback_effect(stored))

    async def skip_feedback(self, request: Request) -> Response:
        """Remember in this browser not to ask for feedback on the issue again."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        kept = [*_skipped(request), _digest(fields.get("issue", ""))][-_MAX_SKIPPED:]
        response = see_other(local_path(fields.get("next", "")))
        response.set_cookie(
            _SKIPPED_COOKIE, "-".join(kept), max_age=_SKIPPED_S, httponly=True, samesite="strict"
        )
        return response

    async def _carry_out(self, verb: str, identifier: str, text: str) -> FormResult:
        if verb == "refresh":
            self._operator.refresh()
            return FormResult(ok=True, message="the tracker is polled now")
        if verb == "move" and len(text) > MAX_STATE_CHARS:
            return FormResult(ok=False, message=f"a state has at most {MAX_STATE_CHARS} characters")
        if len(text) > MAX_ANSWER_CHARS:
            return FormResult(ok=False, message=f"the text has at most {MAX_ANSWER_CHARS} characters")
        done = await self._operator.act(
            verb,
            identifier if verb in ON_ISSUE else None,
            plain_text(text.replace("\r\n", "\n")) if verb in _WITH_TEXT else None,
        )
        if done is None:
            return FormResult(ok=False, message="the daemon does not know this issue any more")
        return FormResult(ok=True, message=done.message, undo=undo_of(done))


class SignInForms:
    """The handlers of the forms that sign browsers in and out."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def show_sign_in(self, request: Request) -> Response:
        """The page of a one-time link.

        Its form uses the link, so a preview of the page does not use it up.
        """
        if self._access.caller(request) in {Caller.OWNER, Caller.BROWSER}:
            return see_other("/")
        link, path = request.query_params.get("link", ""), local_path(request.query_params.get("next", ""))
        if (elsewhere := self._elsewhere(request, link, path)) is not None:
            return elsewhere
        return small_page(
            "Sign in",
            f'<form method="post" action="{SIGN_IN_PATH}">',
            f'<input type="hidden" name="link" value="{escape(link)}">',
            f'<input type="hidden" name="next" value="{escape(path)}">',
            "<p>This signs this browser in to the daemon of your repository.</p>",
            '<p><button type="submit">Open Symphony</button></p>',
            "</form>",
            '<script src="/assets/sign-in.js" defer></script>',
        )

    async def sign_in(self, request: Request) -> Response:
        """Use a one-time link."""
        fields = await form_fields(request)
        path = local_path(fields.get("next", ""))
        if (elsewhere := self._elsewhere(request, fields.get("link", ""), path)) is not None:
            return elsewhere
        try:
            cookie = self._access.sign_in.use_link(fields.get("link", ""))
        except LinkRefusedError as refused:
            _log.warning("browser_refused", used=refused.used)
            if refused.used:
                message = (
                    "this link was used before; if you did not use it, sign out, which ends the sign-in of "
                    "all browsers"
                )
                raise RequestError(403, "link_used", message) from None
            raise RequestError(403, "link_expired", "this link is not valid, or not any more") from None
        _log.info("browser_signed_in")
        response = see_other(f"{self._access.sign_in.root}{path}")
        response.headers["set-cookie"] = cookie
        return response

    def _elsewhere(self, request: Request, link: str, path: str) -> Response | None:
        """Redirect a browser with a valid link to the daemon's own name, which no other answer reveals."""
        address = self._access.own_address(request)
        if address is None or not self._access.sign_in.is_open(link):
            return None
        query = {"link": link} if path == "/" else {"link": link, "next": path}
        return see_other(f"{address}{SIGN_IN_PATH}?{urlencode(query)}")

    async def sign_out(self, request: Request) -> Response:
        """End the sign-in of all browsers."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        cookie = self._access.sign_in.sign_out()
        _log.info("browsers_signed_out")
        headers = {"set-cookie": cookie}
        return small_page("Signed out", "<p>No browser is signed in any more.</p>", headers=headers)


def feedback_skipped(request: Request, identifier: str) -> bool:
    """Whether the person at this browser declined to give feedback on the issue."""
    return _digest(identifier) in _skipped(request)


def _skipped(request: Request) -> list[str]:
    return request.cookies.get(_SKIPPED_COOKIE, "").split("-")


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:_KEY_CHARS]


def unsent_page(error: RequestError, scope: Scope, fields: Mapping[str, str], *, csrf: str = "") -> Response:
    """The page for a browser whose form was refused, with the typed text.

    Its form sends the text again if the browser is below the path of pages: the browser is signed in by then,
    or it sends the CSRF value of its new sign-in.
    """
    blocks = ["<p>This browser has a new sign-in since you opened the page. Send it again.</p>"]
    if error.code == "unauthorized":
        blocks = [
            "<p>This browser is not signed in any more.</p>",
            "<p>To sign it in, run this in your repository: <code>symphony open</code></p>",
        ]
    texts = []
    for name in filter(fields.get, TYPED):
        text = escape(visible(fields[name].replace("\r\n", "\n")))
        area = f'<textarea id="{name}" name="{name}" rows="12" cols="40">\n{text}</textarea>'
        texts.append(f'<p><label for="{name}">What you wrote</label><br>{area}</p>')
    root = root_of(scope)
    if root or csrf:
        kept = {name: value for name, value in fields.items() if name not in TYPED} | {"csrf": csrf}
        hidden = [
            f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
            for name, value in kept.items()
        ]
        action = escape(f"{root}{scope['path']}")
        button = '<p><button type="submit">Send again</button></p>'
        blocks += [f'<form method="post" action="{action}">', *hidden, *texts, button, "</form>"]
    else:
        blocks += ["<p>Copy it: these pages have another address now.</p>", *texts]
    return small_page("Not sent", *blocks, status=error.status_code, headers=error.headers)


def refusal_page(error: RequestError, path: str) -> Response:
    """The page for a browser without access; `path` is the requested path."""
    blocks = [
        f"<p>{escape(error.message[:1].upper() + error.message[1:])} ({escape(error.code)}).</p>",
        "<p>To sign this browser in, run this in your repository: <code>symphony open</code></p>",
    ]
    if error.code != "forbidden_host":
        blocks += [
            # A link on another site leads here without the cookie; a link on this page sends it.
            f'<p>Is it signed in? <a href="{escape(local_path(path))}">Open this page again</a>.</p>',
            '<script src="/assets/return.js" defer></script>',
        ]
    title = "Not signed in" if error.code == "unauthorized" else "Refused"
    return small_page(title, *blocks, status=error.status_code, headers=error.headers)


def local_path(given: str) -> str:
    """The path, query and fragment of an address of this site; `/` for anything else."""
    try:
        parts = urlsplit(given)
    except ValueError:
        return "/"
    if parts.scheme or parts.netloc or not given.startswith("/") or given.startswith(("//", "/\\")):
        return "/"
    return urlunsplit(("", "", quote(parts.path, safe="/%"), parts.query, parts.fragment))


def see_other(path: str, *, notice: str | None = None) -> Response:
    """Redirect a browser to a path of this site; `notice` is the id of the notice to show there."""
    if notice is not None:
        parts = urlsplit(path)
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "notice"]
        path = parts._replace(query=urlencode([*query, ("notice", notice)])).geturl()
    return RedirectResponse(path, status_code=_SEE_OTHER)


# --- what is sent twice ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sent:
    """A form, the end of its handling, and the time until which it is not carried out again."""

    form: tuple[str, tuple[tuple[str, str], ...]]
    done: anyio.Event = field(default_factory=anyio.Event)
    until_s: float = inf
    response: Response | None = None


class Once:
    """Carries a form out once that a browser sends twice, as by a double click. Both get the same answer.

    Only the latest form of a browser counts: a person who pauses, resumes and pauses wants all three.
    """

    def __init__(self, access: Access, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._now_s = now_s
        self._latest: FIFOCache[str, _Sent] = FIFOCache(_MAX_BROWSERS)

    async def handle(
        self, carry_out: Callable[[Request], Awaitable[Response]], limit: int, request: Request
    ) -> Response:
        """The response of a form of at most `limit` bytes."""
        pairs = await form_pairs(request, limit, 2 * MAX_SELECTED + _MAX_FIELDS)
        csrf = dict(pairs).get("csrf", "")
        self._access.check_form(request, csrf)
        sent = _Sent((request.scope["path"], tuple(pairs)))
        before = self._latest.get(csrf)
        if before is not None and before.form == sent.form and self._now_s() < before.until_s:
            await before.done.wait()
            if before.response is not None:
                return before.response
        self._latest[csrf] = sent
        try:
            sent.response = await carry_out(request)
        finally:
            sent.until_s = self._now_s() + _TWICE_S
            sent.done.set()
        return sent.response


# --- typed and unsent text: see `typed` ------------------------------------------------------------------


def forget_typed(request: Request, *places: str) -> None:
    """Forget the text of these places, because it was sent."""
    texts: TypedTexts = request.app.state.typed
    if (who := _typing(request)) is not None:
        for place in places:
            texts.keep(place, "", *who)


async def show_typed(request: Request) -> Response:
    """The `own` unsent texts of the browser by place, and those that are `left` of former sign-ins."""
    texts: TypedTexts = request.app.state.typed
    own, left = dict[str, str](), dict[str, str]()
    if (who := _typing(request)) is not None:
        own, left = texts.of(who[0]), texts.left(who[1])
    return JSONResponse({"own": own, "left": left}, headers={"cache-control": "no-store"})


async def keep_typed(request: Request) -> Response:
    """Store the field `text` for `place`."""
    fields, texts, access = await form_fields(request), request.app.state.typed, request.app.state.access
    access.check_form(request, fields.get("csrf", ""))
    place, text, who = fields.get("place", ""), fields.get("text", "").replace("\r\n", "\n"), _typing(request)
    if who is None or not 0 < len(place) <= _MAX_PLACE_CHARS or len(text) > MAX_CHARS:
        raise RequestError(400, "bad_request", f"a text of at most {MAX_CHARS} characters has a place")
    texts.keep(place, text, *who)
    await texts.recorded()
    return Response(status_code=204)


def _typing(request: Request) -> tuple[str, str] | None:
    """Names of the browser and of its sign-in key; `None` for a caller who may only read."""
    access: Access = request.app.state.access
    csrf = access.csrf(request)
    if csrf is None:
        return None
    return _digest(csrf), _digest(access.sign_in.root)
