import pytest
from structlog.testing import capture_logs

from symphony.domain import Blame, Category
from symphony.observability import bugs


@pytest.mark.parametrize("category", [Category.INTERNAL, Category.FORGE])
def test_a_bug_is_logged_with_its_stack_and_is_a_failure(category: Category) -> None:
    error = ValueError("x")
    with capture_logs() as logs:
        failure = bugs.contained("run_crashed", error, category)
    assert [(line["event"], line["log_level"], line["exc_info"]) for line in logs] == [
        ("run_crashed", "error", error)
    ]
    assert (failure.category, failure.blame, failure.retryable) == (category, Blame.HOST, True)
    assert "ValueError('x')" in failure.message
