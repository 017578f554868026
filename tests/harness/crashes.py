"""What comes of a crash at each fault point: what the crash matrix expects, and the table in the docs."""

from dataclasses import dataclass

from symphony.domain import FaultPoint

__all__ = ["AFTERWARDS", "Afterwards", "table"]

_WORKS = "the issue is taken up"
_REMADE = "what is half-made is thrown away, and the issue taken up"
_GOES_ON = "the workspace is kept as it is; the session goes on, or a new one in it"
_DELIVERS = "the commit is delivered from the workspace, which is then removed"
_REMOVES = "the workspace is removed"
_VERIFIES = "the work is verified anew, by a run without a session"
_NOTHING = "nothing is left to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Afterwards:
    """What the next daemon does about the issue, and how many agent sessions it starts for that.

    `again` is what may be seen twice outside of this machine, with the reason; null where nothing is.
    """

    does: str
    sessions: int = 1
    again: str | None = None


AFTERWARDS = {
    FaultPoint.LOCKED: Afterwards(does=_WORKS),
    FaultPoint.REAPED: Afterwards(does=_WORKS),
    FaultPoint.CHECKED: Afterwards(does=_WORKS),
    FaultPoint.CLAIM_PUT: Afterwards(does=_WORKS),
    FaultPoint.CLAIM_WRITTEN: Afterwards(does=_WORKS),
    FaultPoint.BEFORE_PREPARE: Afterwards(does=_WORKS),
    FaultPoint.WORKSPACE_RECORDED: Afterwards(does=_REMADE),
    FaultPoint.WORKSPACE_POPULATED: Afterwards(
        does=_REMADE, again="what `after_create` does elsewhere: it runs anew"
    ),
    FaultPoint.AFTER_PREPARE: Afterwards(does=_GOES_ON),
    FaultPoint.BEFORE_SPAWN: Afterwards(does=_GOES_ON, again="what `before_run` does elsewhere"),
    FaultPoint.AFTER_SPAWN: Afterwards(does=_GOES_ON),
    FaultPoint.CONVERSATION_WRITTEN: Afterwards(does=_GOES_ON),
    FaultPoint.BEFORE_TOOL: Afterwards(does=_GOES_ON),
    FaultPoint.AFTER_TOOL: Afterwards(
        does=_DELIVERS,
        sessions=0,
        again="a tool call that the agent saw no answer to, should the issue stay active: a comment by the "
        "agent's own tool is then written again, a move is not",
    ),
    FaultPoint.TURN_ENDED: Afterwards(does=_DELIVERS, sessions=0),
    FaultPoint.AGENT_STOPPED: Afterwards(does=_DELIVERS, sessions=0),
    FaultPoint.BEFORE_DELIVER: Afterwards(does=_DELIVERS, sessions=0),
    FaultPoint.AFTER_DELIVER: Afterwards(does=_REMOVES, sessions=0),
    FaultPoint.BEFORE_VERIFY: Afterwards(does=_VERIFIES, sessions=0),
    FaultPoint.CHECK_ENDED: Afterwards(does=_VERIFIES, sessions=0),
    FaultPoint.BEFORE_REVIEWER: Afterwards(does=_VERIFIES, sessions=0),
    FaultPoint.AFTER_REVIEWER: Afterwards(
        does=_VERIFIES, sessions=0, again="the reviewer's session and what it costs"
    ),
    FaultPoint.AFTER_VERIFY: Afterwards(does=_VERIFIES, sessions=0),
    FaultPoint.END_PUT: Afterwards(does=_REMOVES, sessions=0),
    FaultPoint.END_WRITTEN: Afterwards(does=_REMOVES, sessions=0),
    FaultPoint.RETRY_PUT: Afterwards(does=_GOES_ON),
    FaultPoint.RETRY_WRITTEN: Afterwards(does="the retry keeps its number and waits for its time"),
    FaultPoint.BEFORE_PUSH: Afterwards(does=f"{_REMOVES}; the branch is pushed", sessions=0),
    FaultPoint.AFTER_PUSH: Afterwards(does=f"{_REMOVES}; the push finds everything there", sessions=0),
    FaultPoint.JOB_PUT: Afterwards(does=f"{_GOES_ON}; the job is decided anew"),
    FaultPoint.JOB_WRITTEN: Afterwards(does=f"{_GOES_ON}; the job is done"),
    FaultPoint.BEFORE_COMMENT: Afterwards(does=f"{_GOES_ON}; the comment is written"),
    FaultPoint.AFTER_COMMENT: Afterwards(does=f"{_GOES_ON}; the comment is found by its marker and left"),
    FaultPoint.BEFORE_MOVE: Afterwards(does=f"{_GOES_ON}; the move is made if it still fits"),
    FaultPoint.AFTER_MOVE: Afterwards(does=f"{_GOES_ON}; the issue is found where it is to be"),
    FaultPoint.BEFORE_MERGE: Afterwards(does="the approved work is merged once", sessions=0),
    FaultPoint.AFTER_MERGE: Afterwards(does="the merge is found there; the issue is moved", sessions=0),
    FaultPoint.BEFORE_NOTIFICATION: Afterwards(does=f"{_GOES_ON}; the target is notified"),
    FaultPoint.AFTER_NOTIFICATION: Afterwards(
        does=f"{_GOES_ON}; the target is notified again", again="a notification, with the same id"
    ),
    FaultPoint.JOB_DONE_PUT: Afterwards(does=f"{_GOES_ON}; what was done is found done"),
    FaultPoint.JOB_DONE_WRITTEN: Afterwards(does=f"{_GOES_ON}; no job is left"),
    FaultPoint.BEFORE_CLEAN: Afterwards(
        does=_REMOVES, sessions=0, again="what `before_remove` does elsewhere"
    ),
    FaultPoint.MOVED_ASIDE: Afterwards(does="the trash is emptied, the record dropped", sessions=0),
    FaultPoint.AFTER_CLEAN: Afterwards(does=_NOTHING, sessions=0),
}


def table() -> str:
    """The matrix as Markdown."""
    head = "| point | at this moment | what the next start does | sessions | may be seen twice |"
    rows = [head, "|---|---|---|---|---|"]
    for point in FaultPoint:
        after = AFTERWARDS[point]
        rows.append(
            f"| `{point}` | {point.meaning} | {after.does} | {after.sessions} | {after.again or 'nothing'} |"
        )
    return "\n".join(rows)
