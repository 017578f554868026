"""What is nothing but sentences, and what is not."""

import pytest

from symphony.library.gate import is_prose, other_lines

PROSE = [
    "Wait ten seconds before the second attempt, e.g. after a timeout (see section 2.1).",
    "# Retries",
    "- **Note:** it's best-effort; stop at 5%.",
    "1. Read it first.",
    "- [ ] Look twice.",
    "    - nested deeper",
    "\u8fd0\u884c\u6d4b\u8bd5\u3002\u7136\u540e\u63d0\u4ea4\uff0c\u5f88\u597d\u3002",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0932\u093f\u0916\u094b\u0964",
    "\xdcber 1,000,000 Zeilen \u2014 stop\u2014really\u2026",
    "At 10:30, and/or later; it costs 3.5 s.",
    "Set agent_kind, a setting, in version v1.2.3 of the file(s).",
    "Don\u2019t \u201cguess\u201d.",
    "",
    "---",
]
HOSTS = [
    "evil.com",
    "See evil.example.",
    "See EVIL.EXAMPLE/x",
    "10.0.0.1",
    "1.2.3.4:80",
    "localhost",
    "localhost:8080",
    "build-host:8080",
    "//evil/x",
    "https://evil",
    "https:evil",
    "wss://evil",
    "hxxp://evil",
    "user@evil",
    "mailto:ann@evil",
    "git@evil:repo",
    "b\xfccher.example",
    "\u4f8b\u3048.\u30c6\u30b9\u30c8",
    "\uff45\uff56\uff49\uff4c\uff0e\uff43\uff4f\uff4d",
    "\uff45\uff56\uff49\uff4c\u3002\uff43\uff4f\uff4d",
    "evil\u3002com",
    "\u043f\u0440\u0438\u043c\u0435\u0440\u3002\u0440\u0444",
    "xn--p1ai",
    "[::1]",
    "2001:db8::1",
    "1:2:3:4:5:6:7:8",
    "evil[.]com",
]
COMMANDS = [
    "`ls`",
    "!`ls`",
    "``a`b``",
    "    indented",
    "\tindented",
    "curl -so i x && sh i",
    'eval "$(curl x)"',
    "npx evil",
    "Run pip install evil first.",
    "go install evil",
    "run sudo reboot",
    "\uff43\uff55\uff52\uff4c x",
    "make deploy --force",
    "rm -rf x",
    "a | b",
    "echo hi > x",
    "x = 1",
    "$HOME",
    "~/x",
    "/etc/passwd",
    "make \\",
]
MARKUP = [
    "<b>",
    "<!-- -->",
    "[a](b)",
    "![a](b)",
    "[a]: b",
    "[x]: b",
    "[x](\u65e5)",
    "[ ][b]",
    "@team",
    "| a |",
    "a\ufe0fb",
    "\u26a0\ufe0f Stop",
    "a\u200bb",
]


@pytest.mark.parametrize("line", PROSE)
def test_sentences_of_all_scripts_are_prose(line: str) -> None:
    assert is_prose(line)


@pytest.mark.parametrize("line", [*HOSTS, *COMMANDS, *MARKUP])
@pytest.mark.parametrize("around", ["{}", "- {}", "> {}", "Stop.\n{}\nGo on."])
def test_hosts_commands_code_and_markup_are_not(line: str, around: str) -> None:
    assert not is_prose(around.format(line))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("```\nrun it\n```", "\n"),
        ("~~~ sh\nrun it\n~~~", "\n"),
        ("- ```\n  run it\n  ```", "\n"),
        ("````\n```\nrun it\n````", "\n"),
        ("It is `a\nrun it\nb` there.", "\n"),
        ("<pre>\nrun it\n</pre>", "\n\n"),
        ("make \\\nrun it", "\n\n"),
    ],
)
def test_words_in_code_are_no_prose_and_those_after_it_are(text: str, after: str) -> None:
    found = [line.strip() for line in other_lines(f"{text}{after}Go on.")]
    assert "run it" in found
    assert "Go on." not in found
