"""Real processes are killed at every point between feedback and proposal."""

import signal
from multiprocessing import get_context
from pathlib import Path

from harness.learning import LearnerBench, learn, rate_and_learn
from symphony.library.model import LearningState, ProposalState
from symphony.library.store import check

_SPAWN = get_context("forkserver")
_SPAWN.set_forkserver_preload(["harness.learning"])


def test_kill_9_at_every_point_loses_no_feedback_and_makes_no_double_proposal(tmp_path: Path) -> None:
    deaths = missing = 0
    for fatal in range(1, 100):
        home = tmp_path / str(fatal)
        first = _SPAWN.Process(target=rate_and_learn, args=(home, fatal))
        first.start()
        first.join()
        bench = LearnerBench(home)
        check(bench.library.path)
        was_stored = len(bench.found())
        second = _SPAWN.Process(target=learn, args=(home,))
        second.start()
        second.join()
        assert second.exitcode == 0, fatal
        found, proposals = bench.found(), bench.library.proposals(state=None)
        assert len(found) == len(proposals) == was_stored, fatal
        for feedback, proposal in zip(found, proposals, strict=True):
            assert feedback.learned is not None
            assert feedback.learning is LearningState.DONE, fatal
            assert feedback.learned.proposals == (proposal.id,), fatal
            assert proposal.state is ProposalState.OPEN
        if first.exitcode == 0:
            break
        assert first.exitcode == -signal.SIGKILL
        deaths += 1
        missing += not was_stored
    assert deaths >= 8
    assert missing == 2, "only that before whose commit it was killed, which was answered to nobody"
