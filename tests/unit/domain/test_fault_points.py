from symphony.domain import FaultPoint, no_fault


def test_points_have_names_of_their_own_and_the_fault_of_a_daemon_stops_at_none() -> None:
    passed = []
    for point in FaultPoint:
        no_fault(point)
        passed.append(point.value)
    assert len(set(passed)) == len(FaultPoint)
