import pytest

from symphony.daemon.clock import check_wall_clock
from symphony.domain import Category, SymphonyError


@pytest.mark.parametrize("now_ms", [-1, 0, 1_704_067_199_999])
def test_a_wall_clock_of_another_age_is_not_set(now_ms: int) -> None:
    with pytest.raises(SymphonyError) as refused:
        check_wall_clock(now_ms)
    assert refused.value.failure.category is Category.CLOCK_NOT_SET
    assert refused.value.failure.hint is not None


def test_a_wall_clock_of_these_days_is_set() -> None:
    check_wall_clock(1_704_067_200_000)
