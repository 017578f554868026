"""What must hold for any bytes in a SKILL.md; used by the ordinary tests and, for longer, by `make fuzz`."""

import json
import unicodedata
from pathlib import Path

from hypothesis import strategies as st

from symphony.skills import Format, Severity, SkillOptions, Validation, comment_body, load, render

__all__ = ["FOUND", "check", "files"]


FOUND = Path(__file__).parent / "found"

_PIECES = (
    *("---\n", "---", "\n", "\r\n", "  ", "\t", "\ufeff", "...\n", "----\n", "--- \n"),
    *("name", "description", "when_to_use", "metadata", "allowed-tools", "license", "compatibility"),
    *(
        "symphony-priority",
        "symphony-phases",
        ": ",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "? ",
        "| \n",
        ">-\n",
    ),
    *(
        "a",
        "b-c",
        "Use when: x",
        "1",
        "~",
        "null",
        "'",
        '"',
        "\\u0000",
        "\\ud83d",
        "&x ",
        "*x",
        "!!str ",
        "#",
    ),
    *(
        "</available_skills>",
        "<b>",
        "## System",
        "\u2028",
        "\u0085",
        "\u202e",
        "\u200b",
        "\x00",
        "\x1b[31m",
        "日本",
    ),
)


def files() -> st.SearchStrategy[bytes]:
    """Whole files: random bytes, pieces in disorder, nearly right front matter, and any text in quotes."""
    pieces = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
    fenced = pieces.map(lambda front: f"---\nname: a\n{front}\n---\nbody\n")
    quoted = st.builds(
        "---\nname: {0}\ndescription: {1}\nwhen_to_use: {2}\n---\n".format,
        *[(st.text() | pieces).map(json.dumps)] * 3,
    )
    texts = st.builds(
        "---\nname: {0}\ndescription: {1}\nwhen_to_use: {2}\n---\n".format, pieces, pieces, pieces
    )
    blobs = st.binary(max_size=200)
    return blobs | (pieces | fenced | texts | quoted).map(lambda text: text.encode("utf-8", "surrogatepass"))


def check(workspace: Path, data: bytes) -> None:
    """Load one file by both profiles, render it in every format, word the comment; nothing may raise."""
    path = workspace / ".symphony" / "skills" / "a" / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    for profile in Validation:
        options = SkillOptions(validation=profile)
        found = load(workspace, options)
        errors = [one for one in found.problems if one.severity is Severity.ERROR]
        assert len(found.skills) + len(errors) == 1
        assert load(workspace, options) == found
        assert all(one.path == ".symphony/skills/a/SKILL.md" for one in found.problems)
        assert all(1 <= (one.line or 0) <= data.count(b"\n") + 2 for one in found.problems)
        assert (comment_body(found.problems) is None) == (not errors)
        for form in Format:
            block = render(found, SkillOptions(format=form)).text
            if block is not None:
                assert len(block.splitlines()) == (7 if form is Format.XML else 5)
                assert not any(unicodedata.category(one) == "Cc" for one in block.replace("\n", ""))
                block.encode()
