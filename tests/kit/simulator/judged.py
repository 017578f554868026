"""The words of the rules that need more than one moment: the referee, the watch and the world judge them."""

from kit.simulator.rules import Invariant

__all__ = [
    "AGENT",
    "ALL",
    "CLOSED_WAITS",
    "COMMENT",
    "FEEDBACK_ARRIVES",
    "FEEDBACK_BOUNDS",
    "FEEDBACK_ONCE",
    "FINISHED",
    "HEARD",
    "LANDED",
    "LIVENESS",
    "REPLAY",
    "TOLD",
    "TOTAL",
    "WINDS_DOWN",
]

TOTAL = Invariant(name="total", source="ours", rule="`step` never raises, whatever it is told.")
REPLAY = Invariant(
    name="replay",
    source="ours",
    rule="A recorded list of inputs gives the same commands and states again.",
)
LIVENESS = Invariant(
    name="liveness",
    source="SC3, SC5",
    rule="With a healthy tracker and a free slot, an eligible issue starts within two polls and a moment.",
)
WINDS_DOWN = Invariant(
    name="winds-down",
    source="SM1",
    rule="Once every issue is done, nothing stays claimed, and a daemon that is asked to end does end.",
)
AGENT = Invariant(
    name="one-agent-per-issue",
    source="SM3, FL1",
    rule="No agent is started for an issue while another one lives, whichever daemon started it.",
)
COMMENT = Invariant(
    name="no-comment-twice",
    source="TR11",
    rule="An issue has at most one comment of the daemon of each kind, whenever the daemon died.",
)
TOLD = Invariant(
    name="block-is-told",
    source="SM7, RT5",
    rule="In the end each blocked issue has a comment that says so, whatever the tracker refused before.",
)
HEARD = Invariant(
    name="comments-are-heard",
    source="SM7",
    rule="In the end no question is open below which a person wrote.",
)
FINISHED = Invariant(
    name="finished-or-blocked",
    source="SM1, SC5",
    rule="Without failures, and given time, each issue that may be worked on is finished or blocked.",
)

FEEDBACK_ONCE = Invariant(
    name="feedback-once",
    source="ours",
    rule="No failed check, comment or conflict of one head is told twice, whenever the daemon died.",
)
FEEDBACK_BOUNDS = Invariant(
    name="feedback-is-bounded",
    source="ours",
    rule="An issue gets at most 3 turns for reviews and 2 for conflicts, and 3 for checks that never pass.",
)
FEEDBACK_ARRIVES = Invariant(
    name="feedback-arrives",
    source="ours",
    rule="In the end no feedback waits that was recorded as told, and none is due.",
)
CLOSED_WAITS = Invariant(
    name="closed-work-waits",
    source="ours",
    rule="In the end an issue whose pull request was closed waits for a person, or a person lifted that.",
)
LANDED = Invariant(
    name="lands-what-is-good",
    source="ours",
    rule="Only a head whose checks passed, that a person approved and that conflicts with nothing is landed.",
)

ALL = (
    TOTAL,
    REPLAY,
    LIVENESS,
    WINDS_DOWN,
    AGENT,
    COMMENT,
    TOLD,
    HEARD,
    FINISHED,
    FEEDBACK_ONCE,
    FEEDBACK_BOUNDS,
    FEEDBACK_ARRIVES,
    CLOSED_WAITS,
    LANDED,
)
