"""The routes of the HTTP application, one row each.

Routing, the table of access, the OpenAPI description and the requests of the command line come from these
rows; a test holds the page about the API to them. A new route is a row here and its answer in `app._Answers`.
The rows import little, because every command that asks a daemon reads them.

Rows are matched in order against the raw path, before percent-decoding: an identifier may contain a slash
(`%2F`), and no identifier hides a fixed route.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from symphony.api import models
from symphony.api.models import Document, EmptyBody

READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
API_PATH: Final = "/api/v1"
WEBHOOKS_PATH: Final = "/webhooks/"
SIGN_IN_PATH: Final = "/sign-in"
ACTIONS_PATH: Final = "/actions"
SKILLS_PATH: Final = "/skills"
SYSTEM_PATH: Final = "/system"
Edit = (
    models.LibrarySave
    | models.LibraryRemove
    | models.LibraryRevert
    | models.LibraryAssign
    | models.LibraryAccept
    | models.LibraryReject
)
EDITS: Final[Mapping[str, type[Edit]]] = {
    "save": models.LibrarySave,
    "remove": models.LibraryRemove,
    "revert": models.LibraryRevert,
    "assign": models.LibraryAssign,
    "accept": models.LibraryAccept,
    "reject": models.LibraryReject,
}
"""The changes of the library by name, with the document that each takes."""
_PLACEHOLDER: Final = re.compile(r"\{\w+\}")
_ISSUE_PATH: Final = f"{API_PATH}/{{identifier}}"
_CONTROL_PATH: Final = f"{API_PATH}/control"
_OUTBOX_PATH: Final = f"{_CONTROL_PATH}/outbox"
_LIBRARY_PATH: Final = f"{API_PATH}/library"
_SKILL_PATH: Final = f"{SKILLS_PATH}/library/{{name}}"
_REFUSALS_OF_BODIES: Final = (400, 408, 413, 415)
_D_co = TypeVar("_D_co", bound=Document, covariant=True)


class Needs(Enum):
    """What a caller needs; `access` has the table of callers."""

    NO_CHECK = "no check"
    """Nothing, not even the Host header: the answer reveals nothing, or a signature proves the sender."""
    NOTHING = "nothing"
    SIGN_IN = "sign-in"
    """A form that everybody may post."""
    READ = "read"
    VISIT = "visit"
    """An order that every reader may give."""
    ORDER = "order"
    FORM = "form"
    """An order through a form, which has its own CSRF value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path with one of its methods.

    Attributes:
        name: unique; also the name of its answer.
        verb: `GET`, which also answers HEAD and OPTIONS, or `POST`.
        path: the path with `{placeholders}`, each for one segment.
        needs: what a caller needs.
    """

    name: str
    verb: str
    path: str
    needs: Needs = Needs.READ

    def matches(self, path: str) -> bool:
        """Whether it is the route of a path, for any method."""
        return _pattern(self.path).fullmatch(path) is not None

    def url(self, segment: str = "") -> str:
        """The path with this text, percent-encoded, in place of its placeholder."""
        dots = segment.replace(".", "%2E") if segment in {".", ".."} else None
        return _PLACEHOLDER.sub(lambda _: dots or quote(segment, safe="", errors="replace"), self.path)


@cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, _PLACEHOLDER.split(path))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Route, Generic[_D_co]):
    """A route of the API.

    Attributes:
        summary: one line.
        answered: the document of its answer.
        body: the document that a POST takes; an empty `EmptyBody` may be left out.
        status: the status of its answer.
        reads: the parameters of path and query: names in `parameters.PARAMETERS`.
        refusals: its own error statuses; all routes can answer 401, 403, 405 and 500.
        shown: a description of the answer.
        media: its media type.
    """

    summary: str
    answered: type[_D_co]
    body: type[Document] = EmptyBody
    status: int = 200
    reads: tuple[str, ...] = ()
    refusals: tuple[int, ...] = (503,)
    shown: str = "The answer."
    media: str = "application/json"


def _get(
    name: str, path: str, summary: str, answered: type[_D_co], *refusals: int, reads: tuple[str, ...] = ()
) -> Resource[_D_co]:
    return Resource(
        name=name,
        verb="GET",
        path=path,
        summary=summary,
        answered=answered,
        reads=reads,
        refusals=(*refusals, 503),
    )


def _post(
    name: str,
    path: str,
    summary: str,
    answered: type[_D_co],
    *refusals: int,
    body: type[Document] = EmptyBody,
    status: int = 202,
    needs: Needs = Needs.ORDER,
) -> Resource[_D_co]:
    return Resource(
        name=name,
        verb="POST",
        path=path,
        needs=needs,
        summary=summary,
        answered=answered,
        body=body,
        status=status,
        reads=("identifier",) if path.startswith(_ISSUE_PATH) else (),
        refusals=(*refusals, *_REFUSALS_OF_BODIES, 503),
    )


def _on_issue(verb: str, summary: str, body: type[Document] = EmptyBody) -> Resource[models.Verb]:
    return _post(verb, f"{_ISSUE_PATH}/{verb}", summary, models.Verb, 404, 409, body=body)


def _on_daemon(verb: str, summary: str) -> Resource[models.Verb]:
    return _post(verb, f"{_CONTROL_PATH}/{verb}", summary, models.Verb)


def _on_outbox(verb: str, summary: str) -> Resource[models.Outbox]:
    path, body = f"{_OUTBOX_PATH}/{verb}", models.JobChoice
    return _post(f"outbox_{verb}", path, summary, models.Outbox, 404, body=body, status=200)


def _on_library(
    verb: str, body: type[Document], answered: type[_D_co], summary: str | None = None
) -> Resource[_D_co]:
    summary = summary or (body.__doc__ or "").partition("\n")[0]
    path = f"{_LIBRARY_PATH}/{verb}"
    return _post(f"library_{verb}", path, summary, answered, 404, 409, body=body, status=200)


def _page(name: str, path: str, needs: Needs = Needs.READ) -> Route:
    return Route(name=name, verb="GET", path=path, needs=needs)


def _form(name: str, path: str, needs: Needs = Needs.FORM) -> Route:
    return Route(name=name, verb="POST", path=path, needs=needs)


STATE: Final = _get(
    "state",
    f"{API_PATH}/state",
    "The whole daemon: health, one row per issue, totals.",
    models.State,
    400,
    reads=("selection",),
)
REHEARSAL: Final = _get(
    "rehearsal",
    f"{API_PATH}/rehearsal",
    "Which branches merge together.",
    models.Rehearsal,
    *(400, 409),
    reads=("identifiers",),
)
SCHEDULES: Final = _get(
    "schedules", f"{API_PATH}/schedules", "The schedules by which issues are filed.", models.Schedules
)
RUN_SCHEDULE: Final = _post(
    "run_schedule",
    f"{API_PATH}/schedules/run",
    "File an issue of a schedule now.",
    models.CreatedIssue,
    *(404, 409),
    body=models.ScheduleChoice,
    status=201,
)
CREATE_ISSUE: Final = _post(
    "create_issue",
    f"{API_PATH}/issues",
    "Create an issue at the tracker.",
    models.CreatedIssue,
    409,
    body=models.NewIssue,
    status=201,
)
ISSUE: Final = _get(
    "issue", _ISSUE_PATH, "One issue by its identifier.", models.Issue, 400, 404, reads=("identifier",)
)
TASK: Final = _get(
    "task",
    f"{_ISSUE_PATH}/task",
    "One issue as the tracker has it: description, labels, dependencies and comments.",
    models.Task,
    *(400, 404),
    reads=("identifier",),
)
PROMPT: Final = _get(
    "prompt",
    f"{_ISSUE_PATH}/prompt",
    "What a dispatch would send now.",
    models.Prompt,
    *(400, 404, 409),
    reads=("identifier", "phase"),
)
REVIEW: Final = _get(
    "review",
    f"{_ISSUE_PATH}/review",
    "The change of the issue, and the possible decisions.",
    models.Review,
    *(400, 404),
    reads=("identifier", "reviewer", "commits"),
)
DECIDE: Final = _post(
    "decide",
    f"{_ISSUE_PATH}/review",
    "Send finished work back with comments, or approve it.",
    models.ReviewOutcome,
    *(404, 409),
    body=models.ReviewGiven,
    status=200,
)
OPEN: Final = _post(
    "open",
    f"{_CONTROL_PATH}/open",
    "A link that signs one browser in; opens a TCP port if there is none.",
    models.Link,
    409,
    status=200,
)
REFRESH: Final = _post(
    "refresh", f"{API_PATH}/refresh", "Poll and reconcile now.", models.Refresh, needs=Needs.VISIT
)
FEEDBACK: Final = _post(
    "feedback",
    f"{_ISSUE_PATH}/feedback",
    "Say how good the work was; skills may be improved by it.",
    models.Feedback,
    *(404, 409),
    body=models.Stars,
    needs=Needs.VISIT,
)
OUTBOX: Final = _get(
    "outbox",
    _OUTBOX_PATH,
    "Writes that have not arrived yet, and those that the daemon gave up.",
    models.Outbox,
)
ON_ISSUE: Final = {
    row.name: row
    for row in (
        _on_issue("stop", "Stop the run of the issue, and block the issue until it is retried."),
        _on_issue("retry", "Retry the issue now."),
        _on_issue("unblock", "Give the issue a new budget, and retry it."),
        _on_issue("answer", "Answer the question of the issue's agent, and let it continue.", models.Answer),
        _on_issue(
            "approve",
            "Approve the request of the issue's agent that is open, for its session, and let it continue.",
        ),
        _on_issue(
            "deny",
            "Deny the request of the issue's agent that is open, for its session, and let it continue.",
        ),
        _on_issue(
            "comment", "Comment on the issue in the tracker, as a person; it arrives once.", models.NewComment
        ),
        _on_issue("verify", "Run the checks on the finished work of the issue; only the result changes."),
        _on_issue("move", "Move the issue to another state of the tracker, and poll.", models.Move),
    )
}
"""The operator actions on an issue, by verb."""
ON_SELECTED: Final = ("retry", "unblock", "stop", "move")
"""The verbs of `ON_ISSUE` that a page offers for several issues at once."""
ON_DAEMON: Final = {
    row.name: row
    for row in (
        _on_daemon("pause", "Start nothing new; running agents continue."),
        _on_daemon("resume", "Start issues again."),
        _on_daemon("drain", "Start nothing new, let running turns end, then exit."),
    )
}
"""The operator actions on the daemon, by verb."""
ON_OUTBOX: Final = {
    "retry": _on_outbox("retry", "Try jobs at once, even those that were given up."),
    "drop": _on_outbox("drop", "Delete jobs."),
}
"""The operator actions on the outbox, by verb."""

API: Final[tuple[Resource[Document], ...]] = (
    STATE,
    _get(
        "runs",
        f"{API_PATH}/runs",
        "Past and live runs, and sums of them.",
        models.Runs,
        400,
        reads=("run_query",),
    ),
    Resource(
        name="events",
        verb="GET",
        path=f"{API_PATH}/events",
        summary="A stream of what changes.",
        answered=models.Change,
        reads=("last_event",),
        shown="Server-sent events `changed`; this is the data of one.",
        media="text/event-stream",
    ),
    REHEARSAL,
    OPEN,
    REFRESH,
    Resource(
        name="openapi",
        verb="GET",
        path=f"{API_PATH}/openapi.json",
        summary="This description.",
        answered=models.Description,
        refusals=(),
    ),
    SCHEDULES,
    RUN_SCHEDULE,
    CREATE_ISSUE,
    ISSUE,
    TASK,
    PROMPT,
    _get(
        "explanation",
        f"{_ISSUE_PATH}/explanation",
        "Why an issue runs or waits, what happens next, and what a person can do.",
        models.Explanation,
        *(400, 404),
        reads=("identifier",),
    ),
    _get(
        "transcript",
        f"{_ISSUE_PATH}/transcript",
        "What the agent of a run got, said and did.",
        models.Transcript,
        *(400, 404),
        reads=("identifier", "transcript_part"),
    ),
    REVIEW,
    DECIDE,
    *ON_ISSUE.values(),
    FEEDBACK,
    *ON_DAEMON.values(),
    OUTBOX,
    *ON_OUTBOX.values(),
    _get(
        "library_skills",
        f"{_LIBRARY_PATH}/skills",
        "The skills of the library.",
        models.LibrarySkills,
        *(400, 409),
        reads=("skill_search", "page"),
    ),
    _get(
        "library_skill",
        f"{_LIBRARY_PATH}/skills/{{name}}",
        "A skill and its history.",
        models.LibrarySkillPage,
        *(400, 404, 409),
        reads=("skill_name", "version"),
    ),
    _get(
        "library_diff",
        f"{_LIBRARY_PATH}/skills/{{name}}/diff",
        "The difference between two versions.",
        models.LibraryDiff,
        *(400, 404, 409),
        reads=("skill_name", "versions"),
    ),
    _get(
        "library_assignments",
        f"{_LIBRARY_PATH}/assignments",
        "Which issue or agent gets which skills.",
        models.LibraryAssignments,
        409,
    ),
    _get(
        "library_proposals",
        f"{_LIBRARY_PATH}/proposals",
        "Changes that wait for a person.",
        models.LibraryProposals,
        *(400, 409),
        reads=("proposal_state", "page"),
    ),
    _get(
        "library_proposal",
        f"{_LIBRARY_PATH}/proposals/{{id}}",
        "A proposal and its diff.",
        models.LibraryProposalPage,
        *(400, 404, 409),
        reads=("proposal_id",),
    ),
    _on_library("check", models.LibraryDraft, models.LibraryCheck, "Check a SKILL.md."),
    *(_on_library(verb, body, models.LibraryChanged) for verb, body in EDITS.items()),
    _get(
        "skills",
        f"{SKILLS_PATH}.json",
        "The skills beside WORKFLOW.md, and their use.",
        models.SkillsOverview,
    ),
    _get("system", f"{SYSTEM_PATH}.json", "The program, its settings and its checks.", models.System),
    Resource(
        name="metrics",
        verb="GET",
        path="/metrics",
        summary="The metrics of the daemon, for Prometheus.",
        answered=Document,
        refusals=(),
        shown="The text format of Prometheus.",
        media="text/plain",
    ),
    Resource(
        name="health",
        verb="GET",
        path="/healthz",
        needs=Needs.NO_CHECK,
        summary="Whether the daemon's event loop answers. Needs no token.",
        answered=models.Health,
        shown="It answers.",
        refusals=(),
    ),
)
"""The routes of the API, in the order of the description."""
WEBHOOK: Final = _form("webhook", f"{WEBHOOKS_PATH}{{sender}}", Needs.NO_CHECK)
"""The route for webhooks, which exists only if webhooks are accepted: see `app.create_app`."""
PAGES: Final = (
    _page("board_page", "/"),
    _page("issue_page", "/issues/{identifier}"),
    _page("prompt_page", "/issues/{identifier}/prompt"),
    _page("diff_page", "/issues/{identifier}/diff"),
    _page("work_page", "/issues/{identifier}/work"),
    _page("artifact", "/issues/{identifier}/artifacts/{file}"),
    _page("history_page", "/history"),
    _page("skills_page", SKILLS_PATH),
    _page("new_skill_page", f"{SKILLS_PATH}/new"),
    _page("assignments_page", f"{SKILLS_PATH}/assignments"),
    _page("proposals_page", f"{SKILLS_PATH}/proposals"),
    _page("proposal_page", f"{SKILLS_PATH}/proposals/{{id}}"),
    _page("skill_page", _SKILL_PATH),
    _page("edit_skill_page", f"{_SKILL_PATH}/edit"),
    _page("versions_page", f"{_SKILL_PATH}/diff"),
    _page("system_page", SYSTEM_PATH),
    _page("confirm_page", "/confirm"),
    _page("new_issue_page", "/new"),
    _page("theme", "/theme"),
    _page("sign_in_script", "/assets/sign-in.js", Needs.NOTHING),
    _page("return_script", "/assets/return.js", Needs.NOTHING),
    _page("asset", "/assets/{name}", Needs.NOTHING),
    _page("sign_in_page", SIGN_IN_PATH, Needs.NOTHING),
    _form("sign_in_form", SIGN_IN_PATH, Needs.SIGN_IN),
    _form("sign_out_form", "/sign-out"),
    _form("review_draft_form", f"{ACTIONS_PATH}/review-draft"),
    _form("review_form", f"{ACTIONS_PATH}/review"),
    _page("typed", "/typed"),
    _form("keep_text_form", f"{ACTIONS_PATH}/keep-text"),
    _form("feedback_form", f"{ACTIONS_PATH}/feedback"),
    _form("skip_feedback_form", f"{ACTIONS_PATH}/skip-feedback"),
    *(_form(f"{verb}_form", f"{ACTIONS_PATH}/{verb}") for verb in (*ON_ISSUE, *ON_DAEMON, REFRESH.name)),
    _form("selected_form", f"{ACTIONS_PATH}/selected"),
    _form("create_issue_form", f"{ACTIONS_PATH}/create-issue"),
    *(_form(f"library_{verb}_form", f"{ACTIONS_PATH}/library/{verb}") for verb in ("check", *EDITS)),
)
"""The pages, the files that they load, and the forms that they post."""

OPEN_DAEMON: Final = _form("open_daemon_form", f"{ACTIONS_PATH}/open-daemon")
_OF_ALL_DAEMONS: Final = frozenset(
    {"events", "board_page", "theme", "sign_in_script", "return_script", "asset"}
    | {"sign_in_page", "sign_in_form", "sign_out_form"}
)
ALL_DAEMONS: Final = (*(row for row in (*API, *PAGES) if row.name in _OF_ALL_DAEMONS), OPEN_DAEMON)
"""The routes of the page over all daemons of a person, which a separate process serves: see `all_daemons`."""


def needs_of(method: str, path: str) -> Needs:
    """What a caller needs for a request, also for one without a route."""
    reads = method in READING_METHODS
    for row in (*API, *PAGES):
        if row.matches(path) and (row.needs is Needs.NO_CHECK or (row.verb == "GET") is reads):
            return row.needs
    if path.startswith("/assets/" if reads else f"{ACTIONS_PATH}/"):
        return Needs.NOTHING if reads else Needs.FORM
    return Needs.READ if reads else Needs.ORDER
