"""The validation matrix: every rule a conforming implementation has to show, in our words.

A test claims a row with `@pytest.mark.conformance("W-1")`. What a row covers are the ids that docstrings of the code
cite. A row that names what it is `pending` on has no test yet; a test that claims it makes the check fail, so that
the entry is taken out in the very change that brings the proof.
"""

from collections.abc import Iterator
from dataclasses import dataclass

AREAS = {
    "W": "Workflow file",
    "C": "Configuration",
    "P": "Prompt",
    "K": "Workspaces and hooks",
    "T": "Trackers",
    "S": "Scheduling",
    "A": "Agent sessions",
    "O": "Observability",
    "H": "HTTP API",
    "L": "Command line",
    "X": "Workers on other machines",
    "R": "Real services",
}
"""What the letter before the dash stands for, in the order of the report."""

KINDS = {
    "U": "unit",
    "P": "property-based",
    "C": "contract: a fake tracker or agent over the real seam",
    "I": "integration: real processes and files",
    "E": "end to end, with the daemon",
    "X": "external: a real service, opted into",
}

ANYWHERE = "any"
PROCESSES = "POSIX processes, `bash`"
GIT = "git"
PROC = "Linux `/proc`, `bash`"
CODEX = "Codex 0.169.0 from npm, for the real half"
NETWORK_TRACKER = "an account with a tracker over HTTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rule of the matrix.

    `kinds` are letters of `KINDS`; `environment` is what its tests need beyond Python and the development packages;
    `pending` names what will bring its test, and is None for a rule that is shown now.
    """

    id: str
    rule: str
    covers: str
    kinds: str
    environment: str = ANYWHERE
    pending: str | None = None

    @property
    def area(self) -> str:
        """The letter of the area it belongs to."""
        return self.id.partition("-")[0]


def _row(
    row_id: str,
    kinds: str,
    covers: str,
    rule: str,
    *,
    environment: str = ANYWHERE,
    pending: str | None = None,
) -> Row:
    return Row(id=row_id, rule=rule, covers=covers, kinds=kinds, environment=environment, pending=pending)


# One rule, one line: what follows is read as a table.
# fmt: off
def _workflow() -> Iterator[Row]:
    yield _row("W-1", "U", "WF1", "The file that is named is served; without a name, `WORKFLOW.md` in the current directory.")
    yield _row("W-2", "I", "CF8", "A change of the file takes effect without a restart, also where an editor puts a new file in its place.")
    yield _row("W-3", "I", "CF8", "A change that cannot be used leaves the last good settings in force and the daemon alive, and is told.")
    yield _row("W-4", "U", "WF2, WF5", "A missing file, settings that are not YAML and settings that are not a map are three different failures.")
    yield _row("W-5", "U+P", "WF3, WF4, WF11", "No settings, settings that are never closed, empty settings, CRLF and a byte order mark are all read as documented.")


def _configuration() -> Iterator[Row]:
    yield _row("C-1", "U", "CF table", "Every setting has its default, whether it is left out or null.")
    yield _row("C-2", "U", "CF7, TR10", "A tracker kind is required and must be known; the tracker's own keys reach it unchanged and it judges them.")
    yield _row("C-3", "U", "CF3, CF4, CF5", "`$NAME` is a reference only where it is the whole value; set, unset, empty and literal text differ as documented.")
    yield _row("C-4", "U", "CF5", "A path may begin with `~` or be relative to the workflow's directory; what results is absolute.")
    yield _row("C-5", "U", "CF5", "The agent's command reaches the shell as it was written.")
    yield _row("C-6", "U", "CF9", "Limits per state compare states without case and outer space; an entry that is no limit is ignored with one warning.")
    yield _row("C-7", "U", "CF11, CF13", "A value out of bounds is refused under its key; older flat keys are understood; unknown keys only warn.")
    yield _row("C-8", "I", "CF10", "Live settings hold from the next tick on, settings of a session only for sessions that start later.")
    yield _row("C-9", "U", "CF2, WF8, CF12", "The environment overrides no setting by itself, null means the default, and the tracker in memory works.")


def _prompt() -> Iterator[Row]:
    yield _row("P-1", "U", "PR2, PR3, PR4", "The prompt sees the issue and the attempt: nested lists can be walked, times are text, null is a defined value.")
    yield _row("P-2", "U", "PR1, WF9", "An unknown variable or filter fails, and text that is not Liquid has a failure class of its own.")
    yield _row("P-3", "C", "PR5, PR6", "Later turns carry guidance to go on and not the task again; an empty body means a short default prompt.", environment=GIT)
    yield _row("P-4", "C", "PR7", "A prompt that cannot be rendered fails its attempt, which is retried as any other failure.", environment=GIT)


def _workspaces() -> Iterator[Row]:
    yield _row("K-1", "U+P", "DM10", "A workspace's directory follows from the identifier alone; a safe identifier is its own key, any other gets a hash, so two never share one.")
    yield _row("K-2", "I", "WS2", "A workspace is made once, then used again with whatever was changed in it.", environment=GIT)
    yield _row("K-3", "I+P", "WS3, DM12", "A file in its place is replaced; a symlink, a special file and a key that is empty, `.`, `..` or overlong are refused before anything is touched.")
    yield _row("K-4", "I", "WS4, WS5, WS6", "A workspace lies strictly below its root: not the root itself, not elsewhere, not through a link; the root may be a link.")
    yield _row("K-5", "I", "WS9, RT8", "`after_create` runs in a new directory only; failing or running out of time leaves no half-made directory, so the retry runs it again.", environment=PROCESSES)
    yield _row("K-6", "I", "WS9", "`before_run` runs before each attempt, and its failure or timeout ends the attempt.", environment=PROCESSES)
    yield _row("K-7", "I", "WS10", "`after_run` runs after success, failure, timeout and cancellation alike, and its own failure changes nothing.", environment=PROCESSES)
    yield _row("K-8", "I", "WS11, WS12", "`before_remove` may fail, hang or flood its output: the workspace is removed all the same.", environment=PROCESSES)
    yield _row("K-9", "I", "WS8", "A hook that runs out of time leaves no process behind.", environment=PROC)
    yield _row("K-10", "I", "WS13, WS16", "After a change of the root the recorded workspace is the one that is removed, and nothing else is touched.")
    yield _row("K-11", "I", "WS4, AG5", "The agent starts in the issue's workspace; anywhere else it is not started.", environment=PROCESSES)


def _trackers() -> Iterator[Row]:
    yield _row("T-1", "C", "TR1, TR8", "A list holds the states asked for, within the scope, from all pages and in their order.")
    yield _row("T-2", "U", "TR1, TR2", "Nothing asked for is answered without a request.")
    yield _row("T-3", "U+P", "DM6", "Labels are lower-case, trimmed, without blanks and without repetition.")
    yield _row("T-4", "U+P", "TR4", "Optional data that cannot be used becomes null or empty, and the required fields stay whole.")
    yield _row("T-5", "C", "TR4", "A malformed issue is left out of a list with a log line, and fails a refresh that asks for it.")
    yield _row("T-6", "C", "TR2", "A refresh returns whole issues, each id once, without those that are gone.")
    yield _row("T-7", "U", "DM5", "`native_ref` is passed on as it is, can be written as JSON and holds no secret.")
    yield _row("T-8", "U", "TR6", "The tracker's own rules become an explicit `dispatchable`.")
    yield _row("T-9", "C", "TR7", "Each category of failure is reached: configuration, secret, request, status, payload, paging, rate limit.")
    yield _row("T-10", "C", "TR3", "A failure between two pages is a failure of the whole call, never half a list.")
    yield _row("T-11", "U", "TR10", "The profile page of a tracker has every required item, and every variable that authenticates at the service, aliases included.")
    yield _row("T-12", "C", "TR11", "The daemon's own comment is made once, edited in place, left alone while unchanged, and never holds work back.", environment=GIT)


def _scheduling() -> Iterator[Row]:
    yield _row("S-1", "U+P", "SC6", "Issues are taken by priority, then age, then identifier; ties, missing dates and odd priorities have a place.")
    yield _row("S-2", "U", "SC5, DM19", "An issue that is not dispatchable or lacks a required label is not started; a blank required label fits no issue.")
    yield _row("S-3", "P", "SC7, SC8", "Limits overall and per state hold in any order of events.")
    yield _row("S-4", "U", "SC12", "A running issue that is still active gets its fresh snapshot.")
    yield _row("S-5", "C", "SC12", "A running issue that became inactive, unroutable or invisible is stopped, and its workspace stays.")
    yield _row("S-6", "C", "SC12, SC13", "A running issue that is over is stopped first and cleaned up after that.")
    yield _row("S-7", "U", "SC12", "With nothing to ask about there is no request, and a failed refresh stops nobody.")
    yield _row("S-8", "U", "RT2", "A clean end is looked at again after 1000 ms, as attempt 1.")
    yield _row("S-9", "U+P", "RT2, RT3, RT4", "Failures wait 10, 20, 40 … seconds up to the cap, and the attempt counts up.")
    yield _row("S-10", "U", "DM16", "A retry knows its attempt, when it is due, its issue and why.")
    yield _row("S-11", "C", "SC11", "A run that is silent for longer than the limit is stopped and retried; exactly the limit is not longer; 0 or less switches it off.")
    yield _row("S-12", "U", "RT6", "A due retry without a free slot waits again, and says so in the specified words.")
    yield _row("S-13", "U", "RT6", "A due retry whose issue is gone, over, inactive or unroutable is released, and one that cannot be looked at waits again.")
    yield _row("S-14", "U", "RT1, SC4", "A timer that was replaced does nothing.")
    yield _row("S-15", "C", "SC3", "Unusable settings stop dispatch and not reconciliation.")
    yield _row("S-16", "P", "SM3, SM4", "There is never more than one live run of an issue.")
    yield _row("S-17", "C", "SC2", "Workspaces of issues that are over are swept at the start; a tracker that fails then costs a warning.")
    yield _row("S-18", "C", "SM7", "A request for a person blocks the issue, until its state, its labels or its absence release it.")
    yield _row("S-19", "I", "RT9, FL1", "A restart keeps retries, blocks and history, and a damaged store costs no more than those.")
    yield _row("S-20", "C", "SC9, RT7", "An issue that changed between poll and start is not started.")
    yield _row("S-21", "I", "SC16", "A shutdown starts nothing new, ends the sessions in order and leaves nothing running.", environment=PROC)


def _agents() -> Iterator[Row]:
    yield _row("A-1", "I", "AG1", "The command runs in a login shell in the workspace; leading variables and quotes keep their meaning.", environment=PROCESSES)
    yield _row("A-2", "C", "AG4", "Our side of the handshake is valid for the version of the protocol that is aimed at.", environment=CODEX)
    yield _row("A-3", "C", "AG14", "Approval and sandbox are sent as documented; an explicit map is sent unchanged.", environment=CODEX)
    yield _row("A-4", "C", "AG11, DM13", "Thread and turn are recognised, and a session is announced under both.", environment=PROCESSES)
    yield _row("A-5", "C", "AG10", "The limit of a request is a deadline that other messages do not extend.")
    yield _row("A-6", "C", "AG9", "The limit of silence within a turn begins anew with every output.", environment=PROCESSES)
    yield _row("A-7", "C", "AG2, AG3", "Split lines, a line of 10 MB, garbage and a flood on stderr do not disturb a session.", environment=PROCESSES)
    yield _row("A-8", "C", "AG9, AG12", "Completed, failed, interrupted and dead are four different ends of a turn.", environment=PROCESSES)
    yield _row("A-9", "C", "AG15", "Requests for approval are answered by policy, in both generations of the protocol.", environment=PROCESSES)
    yield _row("A-10", "C", "AG13, AG18", "An unknown tool and an unknown request are answered, and the session goes on.", environment=PROCESSES)
    yield _row("A-11", "C", "AG16", "A question to a person ends the run as blocked within a bound.", environment=PROCESSES)
    yield _row("A-12", "C", "AG17, TR9", "A session is offered the selected tracker's tools only; they run in the daemon, for the session's own issue.", environment=PROCESSES)
    yield _row("A-13", "C", "AG18", "Wrong arguments, missing rights and failures on the way are answered in one structure.")
    yield _row("A-14", "I", "AG20", "No credential of a tracker, forge or chat is in a child's environment under any of its names and aliases, and no key of another agent, even where a login profile exports it again; the settings may pass one on by name.", environment=PROCESSES)
    yield _row("A-15", "C", "AG19", "A reload during a session changes neither its tools nor who carries them out.", environment=GIT)
    yield _row("A-16", "C", "AG6, AG8", "All turns of a run share one process and one thread, up to the limit of turns.", environment=PROCESSES)
    yield _row("A-17", "I", "AG21", "Stopping a session ends the whole tree of its processes.", environment=PROC)
    yield _row("A-18", "C+X", "AG23, TK4", "A resumed session keeps its thread, and its tokens are not counted twice.")
    yield _row("A-19", "C", "AG22", "Every agent backend passes the same suite.")
    yield _row("A-20", "C", "AG7, WS10", "An error in the template starts no agent, and `after_run` still runs.", environment=GIT)


def _observability() -> Iterator[Row]:
    yield _row("O-1", "C", "LG3", "What fails at the start, in validation or in dispatch is visible to the operator.", environment=GIT)
    yield _row("O-2", "U", "LG1", "Lines about an issue carry its keys, lines of a session also the session's.")
    yield _row("O-3", "I", "LG3", "A log that cannot be written does not stop the work.")
    yield _row("O-4", "U+P", "TK1, TK2, TK3", "Token totals are right over repeats, drops and mixed payloads.")
    yield _row("O-5", "U", "TK7", "Rate limits are found in both spellings.")
    yield _row("O-6", "U", "TK6", "The time of each run is counted once.")
    yield _row("O-7", "P", "LG5", "No secret reaches a log line, the API or a comment, wherever it stands in what comes in.")
    yield _row("O-8", "C", "AP1, AP5", "The snapshot has its rows, and says so when it is late or not there.")
    yield _row("O-9", "U", "TK8", "Text for people covers every class of event and decides nothing.")


def _api() -> Iterator[Row]:
    yield _row("H-1", "I", "AP2", "The port of the command line wins, 0 takes a free one, and only the own machine is served by default.", environment="loopback network")
    yield _row("H-2", "C", "AP4, AP6", "State and issue have exactly the documented shape.")
    yield _row("H-3", "C", "AP5, AP6, AP7, AP8", "Unknown issue, wrong method, accepted and coalesced refresh, no daemon: each has its status and the same envelope.")
    yield _row("H-4", "C", "AP10", "A page of another origin cannot make the daemon do anything.")
    yield _row("H-4-page", "C", "AP3", "Hostile titles are escaped on the dashboard's page.")


def _command_line() -> Iterator[Row]:
    yield _row("L-1", "I", "CL1, CL2", "The workflow may be named or be the default; a missing one is named absolutely.", environment=GIT)
    yield _row("L-2", "I", "CL2", "A start that fails says so in one clear line and does not exit with 0.", environment=GIT)
    yield _row("L-3", "I", "CL3, CL6", "An end in order exits with 0, any other does not; SIGTERM drains first and stops at once the second time, as SIGINT does.", environment=PROC)
    yield _row("L-4", "U", "CL4, CL5", "Place of the logs, bounds of the port and the acknowledgement of an unguarded posture.")


def _beyond() -> Iterator[Row]:
    ssh = "OpenSSH's server"
    yield _row("X-1", "U", "SW3, SW4", "Among hosts: limit, preference, least load, and waiting when all are full.")
    yield _row("X-2", "I", "SW6, SW7, SW8", "Launch, quoting, containment and clean-up on another machine.", environment=ssh)
    yield _row("R-1", "X", "spec 17.8", "A real tracker and a real agent do one job on items of their own, and clean up.", pending=NETWORK_TRACKER)
    yield _row("R-2", "X", "spec 17.8", "A test of a real program says when it is skipped, and fails the job where it was asked for.", environment=CODEX)

# fmt: on


def _rows() -> Iterator[Row]:
    for area in (
        _workflow,
        _configuration,
        _prompt,
        _workspaces,
        _trackers,
        _scheduling,
        _agents,
        _observability,
        _api,
        _command_line,
        _beyond,
    ):
        yield from area()


ROWS: tuple[Row, ...] = tuple(_rows())
"""Every rule, in the order of the report."""

PENDING = frozenset(row.id for row in ROWS if row.pending)
"""The rules that no test may claim yet."""
