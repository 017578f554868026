"""The watch for issues that nobody starts: judged from the board, not from what the scheduler knows."""

from collections.abc import Iterable

from kit.simulator.books import Moment
from kit.simulator.clock import Clock
from kit.simulator.daemon import Daemon
from kit.simulator.judged import LIVENESS
from kit.simulator.operators import Operators
from kit.simulator.referee import Referee
from kit.simulator.tracker import Tracker
from symphony.scheduler import DayBegan, Drain, Eligible, RunEnded, eligibility, requests_paused_until

__all__ = ["Liveness"]


_SLACK_MS = 10_000


class Liveness:
    """Looks at the board now and then.

    An issue is overdue when it could have been started all the time since long enough: eligible by the board,
    with a slot free, the daemon up and open, its tracker in order and the machine awake.
    """

    def __init__(
        self, clock: Clock, referee: Referee, tracker: Tracker, daemon: Daemon, operators: Operators
    ) -> None:
        self._clock = clock
        self._referee = referee
        self._tracker = tracker
        self._daemon = daemon
        self._operators = operators
        self._open_since_ms = 0
        self._runs_changed_ms = 0
        self._poll_interval_ms = 0
        self._since: dict[str, int] = {}
        self._touched_ms: dict[str, int] = {}
        self._stopped = False

    def watch(self, moment: Moment) -> None:
        """Note since when a slot is free and the doors are open."""
        after, before = moment.after, moment.before
        if after.settings is not before.settings or len(after.running) + len(after.pending_candidates) >= (
            after.settings.max_concurrent_agents
        ):
            self._open_since_ms = moment.now_ms
        closed = after.config_error is not None or after.drain is not Drain.NO or after.paused
        if closed or isinstance(moment.fact, DayBegan):
            self._open_since_ms = moment.now_ms
        if moment.starts or isinstance(moment.fact, RunEnded):
            self._runs_changed_ms = moment.now_ms
            self._touch((before.running.keys() ^ after.running.keys()), moment.now_ms)
        if after.retrying is not before.retrying or after.blocked is not before.blocked:
            changed = (before.retrying.keys() ^ after.retrying.keys()) | (
                before.blocked.keys() ^ after.blocked.keys()
            )
            self._touch(changed, moment.now_ms)

    def _touch(self, issue_ids: Iterable[str], now_ms: int) -> None:
        for key in issue_ids:
            self._touched_ms[key] = now_ms

    def look_now_and_then(self) -> None:
        """Look again after each poll interval.

        Raises:
            InvariantBrokenError: an issue is overdue.
        """
        if not self._stopped:
            self._look()
            self._clock.after(max(self._poll_interval_ms, 1_000), self.look_now_and_then)

    def rest(self) -> None:
        """Look no more."""
        self._stopped = True

    def _look(self) -> None:
        now_ms, daemon = self._clock.now_ms, self._daemon
        if daemon.up_since_ms is None:
            self._since.clear()
            return
        state = daemon.state
        if requests_paused_until(state, now_ms) is not None:
            self._open_since_ms = now_ms
        self._poll_interval_ms = state.settings.poll_interval_ms
        if now_ms <= self._tracker.sound_from_ms:
            self._since.clear()
            return
        ready = {
            issue.id: issue
            for issue in self._tracker.in_states(state.settings.active_states)
            if isinstance(eligibility(issue, state), Eligible)
        }
        self._since = {key: self._since.get(key, now_ms) for key in ready}
        clear_ms = max(
            daemon.up_since_ms,
            self._open_since_ms,
            self._operators.disturbed_ms,
            self._tracker.sound_from_ms,
        )
        patience_ms = 2 * self._poll_interval_ms + _SLACK_MS
        for key, since_ms in self._since.items():
            waits = ready[key].blocked_by or state.settings.max_concurrent_by_state
            latest_ms = max(
                since_ms,
                clear_ms,
                self._touched_ms.get(key, 0),
                self._tracker.changed_ms.get(key, 0),
                self._runs_changed_ms if waits else 0,
            )
            if now_ms - latest_ms > patience_ms:
                words = f"eligible and not started for {now_ms - latest_ms} ms"
                raise self._referee.broken(LIVENESS, words, now_ms, key)
