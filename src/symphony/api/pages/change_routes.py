"""The page of a change and its forms: comments on lines, marks of files that were read, decisions.

Typed text is stored as a draft of this browser, which a separate cookie identifies. A draft is stored before
a decision is tried, so that a refusal loses nothing.
"""

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from symphony.api import models
from symphony.api.access import Access, Caller
from symphony.api.forms import FormResult, Notices, forget_typed, local_path, see_other
from symphony.api.http import RequestError, form_fields
from symphony.api.interface import MAX_REVIEW_CHARS, ApiError, ConflictError, DraftEdit, Operator
from symphony.api.pages.change_views import CONTEXT, MORE_CONTEXT, Asked, change_view, wanted_files
from symphony.api.pages.responding import SLOW_MS, UNKNOWN_ISSUE, Content, respond
from symphony.api.parameters import commit, identifier, number
from symphony.domain import MAX_COUNT, SymphonyError

REVIEWER_COOKIE: Final = "symphony_reviewer"
_REVIEWER: Final = re.compile("[A-Za-z0-9_-]{8,64}")
_AT: Final = re.compile("[no][1-9][0-9]{0,8}")
_NAME_CHARS: Final = 12
_YEAR_S: Final = 365 * 86_400
_GONE: Final = "the daemon does not know this issue any more"


class ChangePages:
    """The handlers of the page and its forms."""

    def __init__(self, operator: Operator, access: Access, notices: Notices) -> None:
        self._operator = operator
        self._access = access
        self._notices = notices

    async def show(self, request: Request) -> Response:
        """The page. A browser without a name gets one, for its drafts."""
        named = _reviewer(request)
        sign_in = sha256(self._access.sign_in.root.encode()).hexdigest()[:_NAME_CHARS]
        name = named or f"{sign_in}-{secrets.token_urlsafe(_NAME_CHARS)}"

        async def read(request: Request) -> Content:
            return await self._content(request, name)

        response = await respond(request, read)
        if named is None:
            response.set_cookie(REVIEWER_COOKIE, name, max_age=_YEAR_S, httponly=True, samesite="strict")
        return response

    async def _content(self, request: Request, reviewer: str) -> Content:
        name, asked = identifier(request), _asked(request)
        may_decide = self._access.csrf(request) is not None and asked.until is None
        looks = reviewer if self._access.caller(request) is not Caller.ANYBODY else None
        review = await self._operator.review(name, looks, asked.since, asked.until)
        if review is None:
            raise RequestError(404, "issue_not_found", UNKNOWN_ISSUE)
        patches = await self._operator.patches(review, wanted_files(review, asked), context=asked.context)
        path = f"/issues/{quote(name, safe='')}/diff"
        return Content(
            template="change.html",
            title=f"Change of {name}",
            section="Board",
            twin=f"/api/v1/{quote(name, safe='')}/review",
            now=review.generated_at,
            view=lambda: change_view(review, asked, patches, path, may_decide=may_decide),
            scope=f"issue:{name}",
            pause_ms=SLOW_MS,
            still=review.status == "ready",
        )

    async def draft(self, request: Request) -> Response:
        """Store or remove a comment on a line, mark a file as read, or go on with a draft."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        notice: FormResult | None = None
        try:
            await self._edit(request, fields, _edit(fields))
            names = (fields.get(name, "") for name in ("issue", "path", "line"))
            forget_typed(request, f"line:{':'.join(names)}")
        except (ApiError, SymphonyError) as error:
            notice = replace(FormResult.of_error(error), unsent=_typed(fields, "text"))
        back = local_path(fields.get("next", ""))
        return see_other(back, notice=None if notice is None else self._notices.put(notice))

    async def decide(self, request: Request) -> Response:
        """Store the overall text, then send back or approve if that button was used."""
        fields = await form_fields(request)
        self._access.check_form(request, fields.get("csrf", ""))
        name, head, back = fields.get("issue", ""), fields.get("head", ""), local_path(fields.get("next", ""))
        decision, message = fields.get("decision", ""), fields.get("message", "")
        unsent, issue_path, is_kept = _typed(fields, "message"), f"/issues/{quote(name, safe='')}", False
        try:
            unsent, is_kept = await self._edit(request, fields, DraftEdit(head=head, message=message)), True
            forget_typed(request, f"review:{name}")
            if decision not in {"send_back", "approve"}:
                return see_other(
                    back, notice=self._notices.put(FormResult(ok=True, message="the draft is kept"))
                )
            given = models.ReviewGiven(
                decision=decision, head=head, message=message, unverified="unverified" in fields
            )
            done = await self._operator.decide(name, _reviewer(request) or "", given, with_draft=True)
            back = issue_path
            notice = FormResult(ok=False, message=_GONE, unsent=unsent)
            if done is not None:
                notice = FormResult(ok=True, message=done.message)
        except (ApiError, SymphonyError) as error:
            notice = replace(FormResult.of_error(error), unsent=unsent)
            code = error.code if isinstance(error, ConflictError) else ""
            if code in {"not_ready", "gone"}:  # the change may be gone with the workspace, the issue stays
                back = issue_path
            elif is_kept:
                notice = replace(notice, unsent="")  # the page shows the draft
            if code == "head_moved":
                back = f"{issue_path}/diff?{urlencode({'since': head})}"
        return see_other(back, notice=self._notices.put(notice))

    async def _edit(self, request: Request, fields: Mapping[str, str], edit: DraftEdit) -> str:
        reviewer = _reviewer(request)
        if reviewer is None:
            raise ConflictError(
                "no_reviewer", "this browser keeps no cookie for its draft", hint="allow cookies of this site"
            )
        draft = await self._operator.draft(fields.get("issue", ""), reviewer, edit)
        if draft is None:
            raise ConflictError("gone", _GONE)
        return draft


def _reviewer(request: Request) -> str | None:
    name = request.cookies.get(REVIEWER_COOKIE, "")
    return name if _REVIEWER.fullmatch(name) else None


def _typed(fields: Mapping[str, str], name: str) -> str:
    """A typed text in the form in which it is shown again."""
    return fields.get(name, "").replace("\r\n", "\n")


def _asked(request: Request) -> Asked:
    """The parts of the change that the address selects. Raises `RequestError`."""
    at, context = request.query_params.get("at", ""), CONTEXT
    if at and not _AT.fullmatch(at):
        raise RequestError(400, "bad_request", "at is n or o and the number of a line")
    with suppress(ValueError):
        context = int(request.query_params.get("context", str(CONTEXT))[:9])
    return Asked(
        since=commit(request, "since"),
        until=commit(request, "until"),
        part=max(number(request, "part", at_most=MAX_COUNT) or 1, 1),
        file=number(request, "file", at_most=MAX_COUNT),
        context=context if context in MORE_CONTEXT else CONTEXT,
        at=at,
    )


def _edit(fields: Mapping[str, str]) -> DraftEdit:
    """The edit of a small form of the page. Raises `ConflictError`."""
    head, drop, path, line = (fields.get(name, "") for name in ("head", "drop", "path", "line"))
    if "take" in fields:
        return DraftEdit(head=head, takes=True)
    if drop:
        return DraftEdit(head=head, drop=int(drop) if drop.isdecimal() and len(drop) < len("1000") else None)
    if "viewed" in fields:
        return DraftEdit(head=head, path=path, viewed=fields["viewed"] == "1")
    text = fields.get("text", "")
    if len(text) > MAX_REVIEW_CHARS:
        raise ConflictError("too_long", f"a comment has at most {MAX_REVIEW_CHARS} characters")
    if not _AT.fullmatch(line):
        raise ConflictError("no_such_line", "no line is named")
    return DraftEdit(
        head=head,
        add=models.ReviewLine(file=path, line=int(line[1:]), text=text, old=line[0] == "o"),
    )
