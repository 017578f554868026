"""The form that creates an issue at the tracker. Typed text stays until the issue is created."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from symphony.api.access import Access
from symphony.api.forms import FormResult, Notices, forget_typed, see_other
from symphony.api.http import MAX_ANSWER_BYTES, RequestError, form_pairs, new_issue
from symphony.api.interface import ApiError, Operator
from symphony.api.models import NewIssue
from symphony.api.pages.responding import Content, respond
from symphony.domain import Selection, SymphonyError

_FIELDS: Final = ("title", "body", "state", "labels", "skill")
_MAX_FIELDS: Final = 16


class NewIssueView(Struct, frozen=True, kw_only=True):
    """The form.

    Attributes:
        typed: the typed texts by field.
        states: the states in which a new issue can begin, the default first.
        skills: names of skills.
    """

    typed: Mapping[str, str]
    states: tuple[str, ...]
    skills: tuple[str, ...]


class NewIssuePages:
    """The handlers of the form."""

    def __init__(self, operator: Operator, access: Access, notices: Notices) -> None:
        self._operator = operator
        self._access = access
        self._notices = notices

    async def new(self, request: Request) -> Content:
        """The empty form."""
        del request
        return await self._content(dict.fromkeys(_FIELDS, ""))

    async def create(self, request: Request) -> Response:
        """Create the issue and go to the board; if that fails, the form with the same text and the reason."""
        fields = dict(await form_pairs(request, MAX_ANSWER_BYTES, _MAX_FIELDS))
        self._access.check_form(request, fields.get("csrf", ""))
        typed = {name: fields.get(name, "") for name in _FIELDS}
        labels = tuple(filter(None, (label.strip() for label in typed["labels"].split(","))))
        given = NewIssue(
            title=typed["title"],
            body=typed["body"].replace("\r\n", "\n"),
            state=typed["state"] or None,
            labels=labels,
            skill=typed["skill"] or None,
        )
        try:
            created = await self._operator.create_issue(new_issue(given))
        except RequestError as error:
            notice = FormResult(ok=False, message=error.message)
        except (ApiError, SymphonyError) as error:
            notice = FormResult.of_error(error)
        else:
            part = FormResult(
                ok=True, message=f"it begins in {created.state}", issue=created.issue_identifier
            )
            done = FormResult(ok=True, message="created 1 issue", parts=(part,))
            forget_typed(request, "new:title", "new:body")
            return see_other("/", notice=self._notices.put(done))

        async def again(_: Request) -> Content:
            return await self._content(typed, notice)

        return await respond(request, again)

    async def _content(self, typed: Mapping[str, str], notice: FormResult | None = None) -> Content:
        state = await self._operator.state(Selection(limit=0))
        skills = await self._operator.skills()
        return Content(
            template="new_issue.html",
            title="New issue",
            section="Board",
            view=lambda: NewIssueView(
                typed=typed,
                states=state.creates_in,
                skills=tuple(sorted({skill.name for skill in skills.skills})),
            ),
            still=True,
            notice=notice,
        )
