"""Which changed files a glob fits, and which tests a patch takes away."""

import pytest

from symphony.daemon.runs.verification import matching, weakened_tests


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("tests/**", "tests/unit/a.py", True),
        ("tests/**", "src/tests/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/b/a.py", True),
        ("*.py", "src/a.py", False),
        ("./*.py", "a.py", True),
        ("docs/", "docs/a/b.md", True),
        ("docs/", "docs.md", False),
        ("a?.py", "ab.py", True),
        ("a[b].py", "a[b].py", True),
        ("a[b].py", "ab.py", False),
        ("*", "new\nline", True),
    ],
)
def test_a_glob_fits_whole_paths_and_a_star_stays_in_its_directory(
    glob: str, path: str, *, fits: bool
) -> None:
    assert list(matching([path], [glob])) == ([path] if fits else [])


def test_tests_that_are_gone_or_newly_skipped_are_named() -> None:
    patch = b"""\
diff --git tests/test_a.py tests/test_a.py
--- tests/test_a.py
+++ tests/test_a.py
-def test_gone():
-async def test_moved():
+async def test_moved():
+@pytest.mark.skip(reason="later")
+def test_new():
diff --git web/a.test.ts web/a.test.ts
-  it("adds numbers", () => {
+  it.skip("adds numbers", () => {
diff --git x_test.go x_test.go
-func TestSum(t *testing.T) {
 def test_context(): pass
"""
    assert list(weakened_tests(patch)) == [
        "tests/test_a.py: test_gone is gone",
        "web/a.test.ts: adds numbers is gone",
        "x_test.go: TestSum is gone",
        'tests/test_a.py: @pytest.mark.skip(reason="later")',
        'web/a.test.ts: it.skip("adds numbers", () => {',
    ]
