import pytest

from symphony.workspaces import parse_numstat


@pytest.mark.parametrize(
    ("output", "files"),
    [
        (b"", []),
        (b"1\t2\ta b\tc\n\0-\t-\tx.bin\0", [("a b\tc\n", 1, 2), ("x.bin", 0, 0)]),
        (b"0\t3\t\0old\0new\x001\t0\tnext\0", [("new", 0, 3), ("next", 1, 0)]),
        (b"1\t0\t\xff\0", [("\\xff", 1, 0)]),
        (b"1\t0\ta\x0012", [("a", 1, 0)]),
    ],
)
def test_what_git_counts_is_read_up_to_where_it_is_cut_off(
    output: bytes, files: list[tuple[str, int, int]]
) -> None:
    changes = parse_numstat(output)
    assert [(file.path, file.insertions, file.deletions) for file in changes] == files
