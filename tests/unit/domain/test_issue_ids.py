import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import UnsafeKeyError, branch_name, natural_order, session_id, workspace_key

_KEYS = st.from_regex(r"[A-Za-z0-9._-]{1,255}", fullmatch=True).filter(lambda key: key not in {".", ".."})


@pytest.mark.conformance("K-1")
@pytest.mark.parametrize(
    ("identifier", "key"),
    [
        ("MT-649", "MT-649"),
        ("a/b", "a_b--c14cddc033f64b9d"),
        ("a b", "a_b--c8687a08aa5d6ed2"),
        ("A.b_c-9", "A.b_c-9"),
    ],
)
def test_the_key_is_the_one_of_the_rule(identifier: str, key: str) -> None:
    assert workspace_key(identifier) == key


@pytest.mark.conformance("K-1")
def test_one_underscore_stands_for_each_code_point() -> None:
    key = workspace_key("ä日")
    assert key == "__--" + hashlib.sha256("ä日".encode()).hexdigest()[:16]


@pytest.mark.conformance("K-1")
def test_a_lone_surrogate_still_has_a_key() -> None:
    assert workspace_key("a\ud800").startswith("a_--")


@pytest.mark.conformance("K-3")
@pytest.mark.parametrize("identifier", ["", ".", "..", "x" * 256, "ä" * 240])
def test_an_unsafe_key_is_refused_before_it_is_used(identifier: str) -> None:
    with pytest.raises(UnsafeKeyError, match="cannot name a workspace directory"):
        workspace_key(identifier)


def test_the_longest_name_a_file_system_takes_is_allowed() -> None:
    assert workspace_key("x" * 255) == "x" * 255


@pytest.mark.conformance("K-1")
@given(st.text(min_size=1, max_size=100))
def test_a_key_is_a_plain_name_and_depends_on_the_identifier_alone(identifier: str) -> None:
    if identifier in {".", ".."}:
        return
    key = workspace_key(identifier)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", key)
    assert key == workspace_key(identifier)


@pytest.mark.conformance("K-1")
@given(
    st.text(alphabet="a/ ._-é", min_size=1, max_size=8), st.text(alphabet="a/ ._-é", min_size=1, max_size=8)
)
def test_two_identifiers_never_share_a_key(one: str, other: str) -> None:
    unsafe = {".", ".."}
    if one != other and not {one, other} & unsafe:
        assert workspace_key(one) != workspace_key(other)


def test_a_branch_carries_the_key() -> None:
    assert branch_name("SYM-7") == "symphony/SYM-7"


@pytest.mark.parametrize("key", ["a..b", ".hidden", "-x", "a.", "a.lock", "x" * 251])
def test_a_hash_stands_in_for_a_key_git_refuses(key: str) -> None:
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    assert branch_name(key) == f"symphony/{digest}"


@given(_KEYS)
def test_every_key_gives_a_branch_git_accepts(key: str) -> None:
    part = branch_name(key).removeprefix("symphony/")
    assert ".." not in part
    assert not part.startswith((".", "-"))
    assert not part.endswith((".", ".lock"))
    assert len(part + ".lock") <= 255, "git locks a branch through a file with this name"


def test_a_session_is_named_after_thread_and_turn() -> None:
    assert session_id("th", "tu") == "th-tu"


# --- the order in which people read identifiers ---


@pytest.mark.parametrize(
    "ordered",
    [
        ["SYM-2", "SYM-10", "SYM-100"],
        ["ABC-11", "SYM-2", "sym-3", "SYM-10"],
        ["2", "10", "SYM-1"],
        ["acme/app#9", "acme/app#10", "acme/site#1"],
        ["SYM", "SYM-1", "SYM-1-a", "SYM-1-b", "SYM-2"],
        ["", "7", "7b", "\u0661"],
    ],
)
def test_lists_are_in_the_order_of_the_numbers(ordered: list[str]) -> None:
    backwards = ordered[::-1]
    assert sorted(backwards, key=natural_order) == ordered


@given(st.lists(st.text(alphabet="aB1290-#/²١"), max_size=8, unique=True))
def test_any_identifiers_have_one_order(identifiers: list[str]) -> None:
    backwards = identifiers[::-1]
    assert sorted(identifiers, key=natural_order) == sorted(backwards, key=natural_order)
