import pytest

from symphony.api.pages.lines import FilePatch, coloured, parse_patch, with_changed_words

PATCH = """\
app.py app.py
old mode 100644
new mode 100755
index 1..2
--- app.py
+++ app.py
@@ -12,4 +12,4 @@ class App:
 def run():
--- a remark
-    return value.at
+    return value.id
+    # @@ -1 +1 @@
 x = 1
@@ -40 +40 @@
-a
\\ No newline at end of file
+b
"""


def kinds(patch: FilePatch) -> list[list[tuple[str, int | None, int | None, str]]]:
    return [[(line.kind, line.old, line.new, line.text) for line in hunk.lines] for hunk in patch.hunks]


def test_lines_have_their_numbers_before_and_after() -> None:
    found = parse_patch(PATCH)
    assert kinds(found) == [
        [
            ("same", 12, 12, "def run():"),
            ("removed", 13, None, "-- a remark"),
            ("removed", 14, None, "    return value.at"),
            ("added", None, 13, "    return value.id"),
            ("added", None, 14, "    # @@ -1 +1 @@"),
            ("same", 15, 15, "x = 1"),
        ],
        [("removed", 40, None, "a"), ("added", None, 40, "b")],
    ]
    assert [(hunk.before, hunk.heading) for hunk in found.hunks] == [(11, "class App:"), (24, "")]
    assert (found.modes, found.hunks[1].lines[0].unended) == ("mode 100644 → 100755", True)


def test_a_file_of_another_type_is_two_hunks() -> None:
    text = (
        "k k\ndeleted file mode 100644\n--- k\n+++ /dev/null\n@@ -1 +0,0 @@\n-text\n"
        "\nk k\nnew file mode 120000\n--- /dev/null\n+++ k\n@@ -0,0 +1 @@\n+README.md\n"
    )
    assert kinds(parse_patch(text)) == [[("removed", 1, None, "text")], [("added", None, 1, "README.md")]]


@pytest.mark.parametrize(
    "text", ["", "no patch", "@@ -1 +1", "@@ -1,5 +1,5 @@\n-a", "\\ No newline", "+a\n-b"]
)
def test_what_is_cut_or_no_patch_is_no_error(text: str) -> None:
    parse_patch(text)


def marked(before: str, after: str) -> list[list[str]]:
    """The pieces of both lines that differ."""
    patch = with_changed_words(parse_patch(f"@@ -1 +1 @@\n-{before}\n+{after}"))
    lines = patch.hunks[0].lines
    assert [line.text for line in lines] == [before, after]
    return [[text for classes, text in line.segments if classes == "w"] for line in lines]


def test_words_that_differ_are_marked() -> None:
    assert marked("    return value.at", "    return value.id") == [["at"], ["id"]]
    assert marked("limit = 50", "limit = 50, 3") == [[], [", 3"]]
    assert marked("alpha beta gamma", "1 + 2 == three()") == [[], []], "they have too little in common"
    assert marked("x" * 500, "x" * 499 + "y") == [[], []], "too long"
    assert marked("a " * 160, "a " * 159 + "b ") == [[], []], "too many words"


def test_many_lines_are_compared_in_bounded_time() -> None:
    same = "a " * 60
    lines = [f"-{same}{number}" for number in range(1_000)] + [f"+{same}b"] * 1_000
    patch = with_changed_words(parse_patch("\n".join(["@@ -1,1000 +1,1000 @@", *lines])))
    assert sum(any(classes for classes, _ in line.segments) for line in patch.hunks[0].lines) == 600


def test_tokens_have_few_classes_and_keep_the_text() -> None:
    patch = coloured(with_changed_words(parse_patch(PATCH)), "App.PY")
    assert kinds(patch) == kinds(parse_patch(PATCH))
    first = patch.hunks[0].lines
    assert first[0].segments[0] == ("k", "def")
    assert ("f", "run") in first[0].segments
    assert first[4].segments[-1][0] == "c"
    found = {classes for hunk in patch.hunks for line in hunk.lines for classes, _ in line.segments}
    assert set(" ".join(found).split()) <= {"k", "s", "c", "n", "f", "w"}


@pytest.mark.parametrize("path", ["notes.txt", "a.unknown", "", "py"])
def test_other_languages_are_plain(path: str) -> None:
    assert coloured(parse_patch(PATCH), path) == parse_patch(PATCH)


def test_what_a_lexer_could_take_long_for_is_plain() -> None:
    for text in ("x = 1 " * 100, "\n+".join(["x = 1"] * 20_000)):
        patch = parse_patch(f"@@ -0,0 +1,{text.count(chr(10)) + 1} @@\n+{text}")
        assert coloured(patch, "a.py") == patch
