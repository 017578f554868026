"""Real processes are killed at every point between feedback and proposal."""

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from harness.learning import LearnerBench, die_at_every_point
from symphony.library.model import LearningState, ProposalState
from symphony.library.store import check


@pytest.mark.slow
def test_kill_9_at_every_point_loses_no_feedback_and_makes_no_double_proposal(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        codes = pool.submit(die_at_every_point, tmp_path).result()
    assert codes == [*[(-signal.SIGKILL, 0)] * (len(codes) - 1), (0, 0)]
    assert len(codes) > 10
    missing = 0
    for point in range(1, len(codes) + 1):
        bench = LearnerBench(tmp_path / str(point))
        check(bench.library.path)
        found, proposals = bench.found(), bench.library.proposals(state=None)
        missing += not found
        assert len(found) == len(proposals) == bool(found), point
        for feedback, proposal in zip(found, proposals, strict=True):
            assert feedback.learned is not None
            assert feedback.learning is LearningState.DONE, point
            assert feedback.learned.proposals == (proposal.id,), point
            assert proposal.state is ProposalState.OPEN
            assert proposal.text.content == "Be brief. Run the tests.\n"
    assert missing == 2, "it was killed before the commit, and nobody was told that the feedback is stored"
