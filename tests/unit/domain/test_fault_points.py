from symphony.domain import FaultPoint, no_fault


def test_points_have_unique_names_and_the_hook_of_a_daemon_does_nothing() -> None:
    passed = []
    for point in FaultPoint:
        no_fault(point)
        passed.append(point.value)
    assert len(set(passed)) == len(FaultPoint)
