"""From what files say to issues: blockers are resolved and it is decided who may be dispatched. Pure (TR6).

Mapping (TR10): `id` and `identifier` are the file stem; `updated_at` stays null, because a file's time is
that of its last checkout and not of a change; `blocked_by` is looked up whatever its case. An issue is
dispatchable when its state is one of the board's and no blocker is open; a blocker that is unknown or
unreadable counts as open, one that is finished and was put elsewhere does not.
"""

from symphony.domain.issue import Blocker, Issue, normalise_state
from symphony.trackers.markdown.blockers import find_cycles
from symphony.trackers.markdown.config import BoardConfig
from symphony.trackers.markdown.document import Fields
from symphony.trackers.markdown.store import Listing, Scan
from symphony.trackers.reading import tidy

__all__ = ["Judge"]


class Judge:
    """Turns what files say into issues; `scan` must hold whatever blocks them."""

    def __init__(self, scan: Scan, listing: Listing, config: BoardConfig) -> None:
        self._scan = scan
        self._config = config
        self._states = {normalise_state(state) for state in config.states}
        self._terminal = {normalise_state(state) for state in config.terminal}
        self._finished = listing.finished
        self._by_name = listing.by_name
        waiting = {
            issue_id: fields
            for issue_id, fields in scan.issues.items()
            if fields.blocked_by and not self._is_terminal(fields.state)
        }
        self._cycles = find_cycles(
            {
                issue_id: [self._resolve(name) for name in fields.blocked_by]
                for issue_id, fields in waiting.items()
            }
        )

    def issue(self, issue_id: str) -> Issue:
        """The normalised issue of a file that is in the scan."""
        fields = self._scan.issues[issue_id]
        reason = self._reason(issue_id, fields)
        issue = Issue(
            id=issue_id,
            identifier=issue_id,
            title=fields.title,
            state=fields.state,
            dispatchable=reason is None,
            not_dispatchable_reason=reason,
            description=fields.description,
            priority=fields.priority,
            assignee_id=fields.assignee,
            labels=fields.labels,
            blocked_by=tuple(self._blocker(name) for name in fields.blocked_by),
            created_at=fields.created,
            updated_at=fields.updated,
        )
        return tidy(issue)  # an id is one line already: `names.id_problem`

    def _is_terminal(self, state: str) -> bool:
        return normalise_state(state) in self._terminal

    def _resolve(self, name: str) -> str:
        return self._by_name.get(name.casefold(), name)

    def _blocker(self, name: str) -> Blocker:
        issue_id = self._resolve(name)
        known = self._scan.issues.get(issue_id)
        return Blocker(id=issue_id, identifier=issue_id, state=None if known is None else known.state)

    def _reason(self, issue_id: str, fields: Fields) -> str | None:
        if self._is_terminal(fields.state):
            return None
        if normalise_state(fields.state) not in self._states:
            return f"state {fields.state!r} is not one of the board's: {', '.join(self._config.states)}"
        if fields.blockers_problem is not None:
            return fields.blockers_problem
        if issue_id in self._cycles:
            ring = self._cycles[issue_id]
            return f"blocked by itself in a cycle: {' -> '.join((*ring, issue_id))}"
        reasons = [self._open(blocker) for blocker in map(self._blocker, fields.blocked_by)]
        told = [reason for reason in reasons if reason is not None]
        return f"blocked by {', '.join(told)}" if told else None

    def _open(self, blocker: Blocker) -> str | None:
        if blocker.state is None and (blocker.id or "").casefold() in self._finished:
            return None
        if blocker.state is None:
            unreadable = blocker.id in self._scan.problems
            return f"{blocker.id} ({'unreadable' if unreadable else 'not on the board'})"
        return None if self._is_terminal(blocker.state) else f"{blocker.id} ({blocker.state})"
