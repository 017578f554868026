"""What pages post as HTML forms: signing in and out, and operator actions.

An action is a form with the fields `csrf` (`Access.csrf`), `issue`, `text` or `state`, and `next`, posted to
`/actions/<verb>`. The answer redirects to `next` with `?notice=<id>`, whatever came of it; the page there
shows the notice of that id. The texts of notices are not in the address, so no link can make one up.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import structlog
from cachetools import FIFOCache
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from symphony.api.access import Access, Caller
from symphony.api.http import RequestError, form_fields, small_page
from symphony.api.interface import MAX_ANSWER_CHARS, MAX_STATE_CHARS, ApiError, Operator
from symphony.api.models import Stars, feedback_effect
from symphony.api.routes import ON_ISSUE, SIGN_IN_PATH
from symphony.api.sign_in import LinkRefusedError
from symphony.domain import SymphonyError, plain_text

SIGN_IN_SCRIPT: Final = "document.forms[0].submit();\n"
RETURN_SCRIPT: Final = """\
const root = localStorage.getItem("root");
if (root && !location.pathname.startsWith("/~"))
  location.replace(root + location.pathname.slice(1) + location.search + location.hash);
"""
"""Leads a browser that is signed in from an address of a notification to the one below its path.

It knows the path by a page that it had: `localStorage` tells ports apart.
"""
_MAX_NOTICES: Final = 64
_SEE_OTHER: Final = 303
_SKIPPED_COOKIE: Final = "symphony_no_feedback"
_SKIPPED_S: Final = 365 * 86_400
_MAX_SKIPPED: Final = 200
_KEY_CHARS: Final = 12
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What came of a form, for the page that is shown next.

    Attributes:
        ok: whether the action was carried out.
        message: what happens now, or why nothing does; untrusted text.
        hint: what to do instead, or `None`.
    """

    ok: bool
    message: str
    hint: str | None = None

    @classmethod
    def of_error(cls, error: ApiError | SymphonyError) -> "Notice":
        """Why nothing was done."""
        why = error.failure if isinstance(error, SymphonyError) else error
        return cls(ok=False, message=why.message, hint=why.hint)


class Notices:
    """The latest notices by their ids."""

    def __init__(self) -> None:
        self._notices: FIFOCache[str, Notice] = FIFOCache(_MAX_NOTICES)

    def put(self, notice: Notice) -> str:
        """Keep a notice; its id."""
        key = secrets.token_urlsafe(9)
        self._notices[key] = notice
        return key

    def of(self, request: Request) -> Notice | None:
        """The notice that a page shows; `None` if there is none, or not any more."""
        return self._notices.get(request.query_params.get("notice", ""))


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
            notice = Notice.of_error(error)
        return see_other(local_path(fields.get("next", "")), notice=self._notices.put(notice))

    async def feedback(self, request: Request) -> Response:
        """Store feedback: the fields `issue`, `stars`, `comment`, and `learn` if skills may learn from it."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        try:
            notice = await self._rate(fields)
        except (ApiError, SymphonyError) as error:
            notice = Notice.of_error(error)
        return see_other(local_path(fields.get("next", "")), notice=self._notices.put(notice))

    async def _rate(self, fields: Mapping[str, str]) -> Notice:
        stars, comment = fields.get("stars", ""), fields.get("comment", "")
        if stars not in {"1", "2", "3", "4", "5"}:
            return Notice(ok=False, message="choose one to five stars")
        if len(comment) > MAX_ANSWER_CHARS:
            return Notice(ok=False, message=f"a comment has at most {MAX_ANSWER_CHARS} characters")
        comment = plain_text(comment.replace("\r\n", "\n")).strip()
        given = Stars(stars=int(stars), comment=comment, learn="learn" in fields)
        stored = await self._operator.feedback(fields.get("issue", ""), given, may_teach=True)
        if stored is None:
            return Notice(ok=False, message="the daemon does not know this issue any more")
        return Notice(ok=True, message=feedback_effect(stored))

    async def skip_feedback(self, request: Request) -> Response:
        """Remember in this browser not to ask for feedback on the issue again."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        kept = [*_skipped(request), _issue_key(fields.get("issue", ""))][-_MAX_SKIPPED:]
        response = see_other(local_path(fields.get("next", "")))
        response.set_cookie(
            _SKIPPED_COOKIE, "-".join(kept), max_age=_SKIPPED_S, httponly=True, samesite="strict"
        )
        return response

    async def _carry_out(self, verb: str, identifier: str, text: str) -> Notice:
        if verb == "refresh":
            self._operator.refresh()
            return Notice(ok=True, message="the tracker is polled now")
        if verb == "move" and len(text) > MAX_STATE_CHARS:
            return Notice(ok=False, message=f"a state has at most {MAX_STATE_CHARS} characters")
        if len(text) > MAX_ANSWER_CHARS:
            return Notice(ok=False, message=f"an answer has at most {MAX_ANSWER_CHARS} characters")
        done = await self._operator.act(
            verb,
            identifier if verb in ON_ISSUE else None,
            plain_text(text.replace("\r\n", "\n")) if verb in {"answer", "move"} else None,
        )
        if done is None:
            return Notice(ok=False, message="the daemon does not know this issue any more")
        return Notice(ok=True, message=done.message)

    # --- signing in and out ------------------------------------------------------------------------------

    async def show_sign_in(self, request: Request) -> Response:
        """The page of a one-time link, whose form uses the link: a preview of the page does not use it up."""
        if self._access.caller(request) in {Caller.OWNER, Caller.BROWSER}:
            return see_other("/")
        link = request.query_params.get("link", "")
        if (elsewhere := self._elsewhere(request, link)) is not None:
            return elsewhere
        return small_page(
            "Sign in",
            f'<form method="post" action="{SIGN_IN_PATH}">',
            f'<input type="hidden" name="link" value="{escape(link)}">',
            "<p>This signs this browser in to the daemon of your repository.</p>",
            '<p><button type="submit">Open Symphony</button></p>',
            "</form>",
            '<script src="/assets/sign-in.js" defer></script>',
        )

    async def sign_in(self, request: Request) -> Response:
        """Use a one-time link."""
        fields = await form_fields(request)
        if (elsewhere := self._elsewhere(request, fields.get("link", ""))) is not None:
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
        response = see_other(f"{self._access.sign_in.root}/")
        response.headers["set-cookie"] = cookie
        return response

    def _elsewhere(self, request: Request, link: str) -> Response | None:
        """Lead a browser with an open link to the daemon's own name, which is told to no one else."""
        address = self._access.own_address(request)
        if address is None or not self._access.sign_in.is_open(link):
            return None
        return see_other(f"{address}{SIGN_IN_PATH}?{urlencode({'link': link})}")

    async def sign_out(self, request: Request) -> Response:
        """End the sign-in of all browsers."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        cookie = self._access.sign_in.sign_out()
        _log.info("browsers_signed_out")
        headers = {"set-cookie": cookie}
        return small_page("Signed out", "<p>No browser is signed in any more.</p>", headers=headers)


def feedback_skipped(request: Request, identifier: str) -> bool:
    """Whether a person at this browser does not want to give feedback on the issue."""
    return _issue_key(identifier) in _skipped(request)


def _skipped(request: Request) -> list[str]:
    return request.cookies.get(_SKIPPED_COOKIE, "").split("-")


def _issue_key(identifier: str) -> str:
    return sha256(identifier.encode(errors="replace")).hexdigest()[:_KEY_CHARS]


def refusal_page(error: RequestError, path: str, texts: Sequence[str] = ()) -> Response:
    """The page for a browser that is not let in; `path` is what it asked for, `texts` what it sent."""
    unsent = (
        f"<p><label>Not sent, to be copied: <br><textarea readonly rows=8 cols=72>{escape(text)}</textarea>"
        "</label></p>"
        for text in texts
    )
    blocks = (
        f"<p>{escape(error.message[:1].upper() + error.message[1:])} ({escape(error.code)}).</p>",
        "<p>To sign this browser in, run this in your repository: <code>symphony open</code></p>",
        # A link of another site leads here without the cookie; a link of this page sends it.
        f'<p>If it is signed in already: <a href="{escape(local_path(path))}">open this page again</a>.</p>',
        *unsent,
        '<script src="/assets/return.js" defer></script>',
    )
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
    """Send a browser to a path of this site; `notice` is the id of what the page there shows."""
    if notice is not None:
        parts = urlsplit(path)
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "notice"]
        path = parts._replace(query=urlencode([*query, ("notice", notice)])).geturl()
    return RedirectResponse(path, status_code=_SEE_OTHER)
