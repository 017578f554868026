"""The pages about skills, and the forms on them that change the library.

A form answers with a redirect and a notice. If a text cannot be saved, the answer is the editor again, so
that no text is lost. The same is true for its check, and a script takes the findings from that page.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from symphony import to_thread
from symphony.api import library
from symphony.api.access import Access
from symphony.api.conditions import Condition
from symphony.api.forms import FormResult, Notices, forget_typed, local_path, see_other
from symphony.api.http import MAX_EDIT_BYTES, RequestError, form_pairs
from symphony.api.interface import ApiError, ConflictError, Operator, UnavailableError
from symphony.api.library import MAX_ASSIGNED, PROPOSAL_STATES
from symphony.api.live import LIBRARY
from symphony.api.models import LibraryDraft, LibrarySave, SkillsOverview
from symphony.api.pages import skills_views
from symphony.api.pages.responding import SLOW_MS, Content, respond
from symphony.api.parameters import page_of, proposal_id, proposal_state, version_of
from symphony.api.routes import EDITS, SKILLS_PATH
from symphony.domain import Selection, SymphonyError
from symphony.library.model import LibraryError

_TWIN: Final = "/api/v1/library"
_MAX_FIELDS: Final = MAX_ASSIGNED + 16
_STALE_HINT: Final = "compare both below; what you save now replaces the newest version"
Fields = dict[str, list[str]]
_NEW: Final = """\
---
name: my-skill
description: What the skill is for, in one line.
when_to_use: When an agent should read it, in one line.
---
# What to do

1. The first step.
"""


class SkillPages:
    """The handlers."""

    def __init__(self, operator: Operator, access: Access, notices: Notices) -> None:
        self._operator = operator
        self._access = access
        self._notices = notices

    async def skills(self, request: Request) -> Content:
        """The skills, the problems with their files, and their use in runs."""
        search, scope = request.query_params.get("q", "").strip(), request.query_params.get("scope", "")
        page = page_of(request)
        if scope not in skills_views.SCOPES:
            raise RequestError(400, "bad_request", f"scope is one of {', '.join(skills_views.SCOPES[1:])}")
        skills = await self._operator.skills()
        problem, found = None, None
        try:
            in_use = self._operator.library()
            found = await to_thread.run_sync(library.overview, in_use, search)
        except UnavailableError as error:
            problem = Condition(tone="warn", text=f"The library cannot be read: {error.message}")
        except LibraryError as error:
            problem = Condition(tone="error", text=error.failure.message, hint=error.failure.hint)
        return Content(
            template="skills.html",
            title="Skills",
            section="Skills",
            twin=f"{SKILLS_PATH}.json",
            now=skills.generated_at,
            view=lambda: skills_views.skills_view(
                skills,
                skills_views.skill_list(skills, found, search=search, scope=scope, page=page),
                search=search,
                scope=scope,
                page=page,
                problem=problem,
            ),
            reloads=True,
            pause_ms=SLOW_MS,
        )

    async def skill(self, request: Request) -> Content:
        """One skill of the library, with its versions."""
        name, version = str(request.path_params["name"]), version_of(request, "version")
        page = await to_thread.run_sync(library.skill, self._operator.library(), name, version)
        skills = await self._repository_skills()
        return Content(
            template="skill.html",
            title=name,
            section="Skills",
            twin=f"{_TWIN}/skills/{name}",
            view=lambda: skills_views.skill_view(page, skills),
            pause_ms=SLOW_MS,
        )

    async def _repository_skills(self) -> SkillsOverview | None:
        try:
            return await self._operator.skills()
        except UnavailableError:
            return None

    async def versions(self, request: Request) -> Content:
        """The difference between two versions of a skill."""
        name, in_use = str(request.path_params["name"]), self._operator.library()
        newest = (await to_thread.run_sync(library.skill, in_use, name)).skill.version
        new = version_of(request, "new") or newest
        old = version_of(request, "old") or max(new - 1, 1)
        diff = await to_thread.run_sync(library.diff, in_use, name, old, new)
        return Content(
            template="versions.html",
            scope=LIBRARY,
            title=f"Versions of {name}",
            section="Skills",
            twin=f"{_TWIN}/skills/{name}/diff",
            view=lambda: skills_views.versions_view(diff, newest),
            pause_ms=SLOW_MS,
        )

    async def assignments(self, request: Request) -> Content:
        """The assignments of skills, and a picker."""
        query, in_use = request.query_params, self._operator.library()
        kind, target, search = query.get("kind", "issue"), query.get("target", "").strip(), query.get("q", "")
        if kind not in {"issue", "agent"}:
            raise RequestError(400, "bad_request", "kind is issue or agent")
        chosen = frozenset(query.getlist("skills")) if "q" in query else None
        overview = await to_thread.run_sync(library.overview, in_use, search)
        found = await to_thread.run_sync(library.assignments, in_use)
        state = await self._operator.state(Selection())
        return Content(
            template="assignments.html",
            title="Assignments",
            section="Skills",
            twin=f"{_TWIN}/assignments",
            now=state.generated_at,
            view=lambda: skills_views.assignments_view(
                found, overview, state, kind=kind, target=target, search=search, chosen=chosen
            ),
            still=True,
        )

    async def proposals(self, request: Request) -> Content:
        """The proposals that wait for a person, or that were decided."""
        state, page = proposal_state(request), page_of(request)
        found = await to_thread.run_sync(library.proposals, self._operator.library(), state, page)
        return Content(
            template="proposals.html",
            scope=LIBRARY,
            title="Proposals",
            section="Skills",
            twin=f"{_TWIN}/proposals",
            view=lambda: skills_views.proposals_view(found, state, PROPOSAL_STATES),
            reloads=True,
            pause_ms=SLOW_MS,
        )

    async def proposal(self, request: Request) -> Content:
        """One proposal: its changes, and where it comes from."""
        found = await to_thread.run_sync(library.proposal, self._operator.library(), proposal_id(request))
        return Content(
            template="proposal.html",
            scope=LIBRARY,
            title=f"Proposal {found.proposal.id} for {found.proposal.name}",
            section="Skills",
            twin=f"{_TWIN}/proposals/{found.proposal.id}",
            view=lambda: skills_views.proposal_view(found),
            pause_ms=SLOW_MS,
        )

    # --- the editor --------------------------------------------------------------------------------------

    async def new(self, request: Request) -> Content:
        """The editor with a template of a new skill."""
        del request
        return await self._editor("", _NEW, 0)

    async def edit(self, request: Request) -> Content:
        """The editor with the newest version of a skill."""
        name = str(request.path_params["name"])
        page = await to_thread.run_sync(library.skill, self._operator.library(), name)
        return await self._editor(name, page.file, page.skill.version)

    async def _editor(
        self,
        name: str,
        file: str,
        base_version: int,
        *,
        reason: str = "",
        notice: FormResult | None = None,
        stale: bool = False,
    ) -> Content:
        """The editor. For a stale edit it also shows the newest version, which the next save replaces."""
        in_use = self._operator.library()
        draft = LibraryDraft(file=file, name=name or msgspec.UNSET)
        checked, content = await to_thread.run_sync(library.checked, in_use, draft)
        view = skills_views.EditorView(
            name=name, file=file, base_version=base_version, reason=reason, check=checked, content=content
        )
        if stale:
            theirs = await to_thread.run_sync(library.skill, in_use, name)
            lines = skills_views.diff_lines(await to_thread.run_sync(library.unified, theirs.file, file))
            view = replace(view, base_version=theirs.skill.version, theirs=theirs, lines=lines)
        return Content(
            template="editor.html",
            title=f"Edit {name}" if name else "New skill",
            section="Skills",
            view=lambda: view,
            still=True,
            notice=notice,
        )

    async def check(self, request: Request) -> Response:
        """The editor with the problems of its text; nothing is stored."""
        fields = await self._fields(request)
        return await respond(request, lambda _: self._checked(fields))

    async def _checked(self, fields: Fields) -> Content:
        name, file, base, reason = _edit_fields(fields)
        return await self._editor(name, file, base, reason=reason)

    async def save(self, request: Request) -> Response:
        """Save the text of the editor; if that fails, show the editor with the same text and the reason."""
        fields = await self._fields(request)
        name, file, base, reason = _edit_fields(fields)
        stale = False
        try:
            in_use = self._operator.library()
            edit = LibrarySave(file=file, base_version=base, reason=reason)
            done = await to_thread.run_sync(partial(library.change, in_use, edit, name=name))
        except ConflictError as error:
            stale, notice = True, FormResult(ok=False, message=error.message, hint=_STALE_HINT)
        except (ApiError, SymphonyError) as error:
            notice = FormResult.of_error(error)
        else:
            codes = dict.fromkeys(each.code.replace("_", " ") for each in done.findings)
            hint = f"read it twice: the check found: {', '.join(codes)}" if codes else None
            key = self._notices.put(FormResult(ok=True, message=done.message, hint=hint))
            forget_typed(request, f"skill:{name}:{base}", f"reason:{name}:{base}")
            return see_other(f"{SKILLS_PATH}/library/{done.name}", notice=key)

        async def again(_: Request) -> Content:
            return await self._editor(name, file, base, reason=reason, notice=notice, stale=stale)

        return await respond(request, again)

    async def change(self, verb: str, request: Request) -> Response:
        """Change the library by another form, and go to the page `next`."""
        fields = await self._fields(request)
        given: dict[str, object] = {name: values[-1] for name, values in fields.items()}
        given["skills"] = None if "drop" in fields else fields.get("skills", [])
        try:
            edit = msgspec.convert(given, EDITS[verb], strict=False)
            done = await to_thread.run_sync(library.change, self._operator.library(), edit)
            notice = FormResult(ok=True, message=done.message)
        except msgspec.ValidationError:
            notice = FormResult(ok=False, message="something is missing in this form, or is too long")
        except (ApiError, SymphonyError) as error:
            notice = FormResult.of_error(error)
        return see_other(local_path(fields.get("next", [SKILLS_PATH])[-1]), notice=self._notices.put(notice))

    async def _fields(self, request: Request) -> Fields:
        """The values of a form by name.

        Raises:
            RequestError: it is no form, or it does not come from a page of this browser.
        """
        fields: dict[str, list[str]] = {}
        for name, value in await form_pairs(request, MAX_EDIT_BYTES, _MAX_FIELDS):
            fields.setdefault(name, []).append(value)
        self._access.check_form(request, fields.get("csrf", [""])[-1])
        return fields


def _edit_fields(fields: Fields) -> tuple[str, str, int, str]:
    """The editor's fields: skill name (empty for a new one), file, first version, reason."""
    name, file, base, reason = (
        fields.get(key, [""])[-1] for key in ("name", "file", "base_version", "reason")
    )
    return name, file.replace("\r\n", "\n"), int(base) if base.isascii() and base.isdecimal() else 0, reason
