"""A write to a forge: one step at one pull request."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from symphony.daemon.jobs import JobRunner
from symphony.journal.model import PullRequestRecord, encode

KIND: Final = "pull_request"


class ForgeStep(StrEnum):
    """The kinds of writes."""

    OPEN = "open"
    LAND = "land"
    DISARM = "disarm"
    REPLY = "reply"
    END = "end"


class ForgeWrite(Struct, frozen=True, kw_only=True):
    """One step, and its commit or answer. `thread` is the thread of an answer."""

    step: ForgeStep
    about: str
    thread: str | None = None


def queue_write(
    jobs: JobRunner, record: PullRequestRecord, step: ForgeStep, *, about: str, thread: str | None = None
) -> None:
    """Queue a step, unless it is queued already.

    A step that was given up is tried again when a person asks for it.
    """
    name = ForgeStep.LAND if step is ForgeStep.DISARM else step  # the newer one of the two counts
    key = ":".join(filter(None, (record.issue.id, name, thread)))
    payload = encode(ForgeWrite(step=step, about=about, thread=thread))
    if not jobs.knows(f"{KIND}:{key}", payload):
        jobs.queue(
            kind=KIND,
            key=key,
            receiver=record.forge,
            issue_id=record.issue.id,
            issue_identifier=record.issue.identifier,
            payload=payload,
        )
