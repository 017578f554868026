"""The routes of the API about the library of skills. The library is asked in a thread."""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from symphony import to_thread
from symphony.api import library
from symphony.api.http import RequestError, answer, library_body, number
from symphony.api.interface import Operator
from symphony.api.library import EDITS, MAX_PAGES, PROPOSAL_STATES
from symphony.api.models import LibraryDraft
from symphony.domain import MAX_COUNT

LIBRARY_PATH: Final = "/api/v1/library"
AUTHOR: Final = "operator"
"""Who changes the library through the API or a page: no caller has a name."""


class LibraryRoutes:
    """The handlers."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def skills(self, request: Request) -> Response:
        """A page of the skills."""
        query = request.query_params
        if query.get("learned", "1") != "1":
            raise RequestError(400, "bad_request", "learned is 1, or missing")
        read = partial(library.skills, learned="learned" in query)
        found = await to_thread.run_sync(read, self._operator.library(), query.get("q", ""), page_of(request))
        return answer(found)

    async def skill(self, request: Request) -> Response:
        """One skill with its history."""
        name, version = str(request.path_params["name"]), version_of(request, "version")
        return answer(await to_thread.run_sync(library.skill, self._operator.library(), name, version))

    async def diff(self, request: Request) -> Response:
        """What two versions of a skill differ in."""
        name = str(request.path_params["name"])
        old, new = version_of(request, "old"), version_of(request, "new")
        if old is None or new is None:
            raise RequestError(400, "bad_request", "old and new are versions of the skill")
        return answer(await to_thread.run_sync(library.diff, self._operator.library(), name, old, new))

    async def assignments(self, request: Request) -> Response:
        """All assignments."""
        del request
        return answer(await to_thread.run_sync(library.assignments, self._operator.library()))

    async def proposals(self, request: Request) -> Response:
        """A page of the proposals in one state."""
        state, page = proposal_state(request), page_of(request)
        return answer(await to_thread.run_sync(library.proposals, self._operator.library(), state, page))

    async def proposal(self, request: Request) -> Response:
        """One proposal with what it changes."""
        return answer(
            await to_thread.run_sync(library.proposal, self._operator.library(), proposal_id(request))
        )

    async def check(self, request: Request) -> Response:
        """What is wrong with a SKILL.md."""
        draft = await library_body(request, LibraryDraft)
        return answer(await to_thread.run_sync(library.check, self._operator.library(), draft))

    async def change(self, verb: str, request: Request) -> Response:
        """Change the library."""
        edit = await library_body(request, EDITS[verb])
        return answer(await to_thread.run_sync(library.change, self._operator.library(), edit, AUTHOR))


def page_of(request: Request) -> int:
    """The page in the query, the first one by default.

    Raises:
        RequestError: 400: it is no number.
    """
    page = number(request, "page", at_most=MAX_PAGES)
    if page == 0:
        raise RequestError(400, "bad_request", "pages begin at 1")
    return page or 1


def version_of(request: Request, name: str) -> int | None:
    """The version in the query.

    Raises:
        RequestError: 400: it is no number.
    """
    version = number(request, name, at_most=MAX_COUNT)
    if version == 0:
        raise RequestError(400, "bad_request", "versions begin at 1")
    return version


def proposal_state(request: Request) -> str:
    """The state in the query, `open` by default.

    Raises:
        RequestError: 400: there is no such state.
    """
    state = request.query_params.get("state", PROPOSAL_STATES[0])
    if state not in PROPOSAL_STATES:
        raise RequestError(400, "bad_request", f"state is one of {', '.join(PROPOSAL_STATES)}")
    return state


def proposal_id(request: Request) -> int:
    """The number of a proposal in the path.

    Raises:
        RequestError: 404: it is no number.
    """
    text = str(request.path_params["id"])
    if not (text.isascii() and text.isdecimal() and int(text[:20]) <= MAX_COUNT):
        raise RequestError(404, "not_in_library", "the number of a proposal is 1, 2, …")
    return int(text)
