from symphony.domain import plural


def test_one_is_no_plural() -> None:
    assert [plural(number, "turn") for number in (0, 1, 2)] == ["0 turns", "1 turn", "2 turns"]
