from hypothesis import given
from hypothesis import strategies as st

from symphony.trackers.markdown.board import find_cycles

IDS = st.sampled_from("abcdefgh")


def test_a_chain_has_no_cycle() -> None:
    assert find_cycles({"a": ["b"], "b": ["c"], "c": []}) == {}


def test_an_issue_that_blocks_itself_is_a_cycle_of_one() -> None:
    assert find_cycles({"a": ["a"]}) == {"a": ("a",)}


def test_each_member_of_a_cycle_is_told_beginning_with_itself() -> None:
    cycles = find_cycles({"a": ["b"], "b": ["c"], "c": ["a"]})
    assert cycles == {"a": ("a", "b", "c"), "b": ("b", "c", "a"), "c": ("c", "a", "b")}


def test_who_only_waits_for_a_cycle_is_not_in_it() -> None:
    assert set(find_cycles({"a": ["b"], "b": ["a"], "c": ["a"]})) == {"a", "b"}


def test_unknown_blockers_are_no_cycle() -> None:
    assert find_cycles({"a": ["gone"]}) == {}


def test_a_ring_of_twenty_thousand_is_found_in_linear_time() -> None:
    count = 20_000
    ring = {str(index): [str((index + 1) % count)] for index in range(count)}
    cycles = find_cycles({**ring, "tail": ["0"]})
    assert len(cycles) == count
    assert cycles["19997"] == ("19997", "19998", "19999", "0", "1", "2", "3", "4", "5", "6", "...")


@given(st.dictionaries(IDS, st.lists(IDS)))
def test_for_any_board_a_cycle_is_told_exactly_when_there_is_one(graph: dict[str, list[str]]) -> None:
    cycles = find_cycles(graph)
    for issue, ring in cycles.items():
        assert ring[0] == issue
        for here, there in zip(ring, (*ring[1:], ring[0]), strict=True):
            assert there in graph[here]
    assert bool(cycles) == any(_reaches(graph, issue, issue) for issue in graph)


def _reaches(graph: dict[str, list[str]], start: str, goal: str) -> bool:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        issue = todo.pop()
        if issue == goal:
            return True
        if issue in graph and issue not in seen:
            seen.add(issue)
            todo.extend(graph[issue])
    return False
