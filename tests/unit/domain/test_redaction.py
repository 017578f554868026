import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.domain import MASK, Blame, Category, Failure, Redaction, fence, mask_credentials, redaction
from symphony.domain import redaction as plain_text

SIZE = 64_000
SHAPES = {
    "linear": "lin_api_0123456789abcdef",
    "github": "ghp_0123456789abcdefghij",
    "github fine-grained": "github_pat_0123456789abcdefghij",
    "gitlab": "glpat-0123456789abcdef",
    "jira": "ATATT0123456789abcdefghij",
    "openai": "sk-proj-0123456789abcdef",
    "slack": "xoxb-0123456789",
    "aws": "AKIA0123456789ABCDEF",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
}


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
def test_what_looks_like_a_credential_is_masked(secret: str) -> None:
    shown = mask_credentials(f"it said {secret} and went on")
    assert secret not in shown
    assert shown == f"it said {MASK} and went on"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fetch https://me:pass@host/x.git failed", "fetch https://***@host/x.git failed"),
        ("GET https://host/a?key=1234", "GET https://host/a?***"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("API_KEY=abcdefgh next", "API_KEY=*** next"),
        ('{"password": "hunter22"}', '{"password": "***"}'),
        ("423 tokens (420 in, 3 out)", "423 tokens (420 in, 3 out)"),
        ("max_tokens: 4000", "max_tokens: 4000"),
    ],
)
def test_addresses_headers_and_assignments_are_masked_and_counts_are_not(text: str, shown: str) -> None:
    assert mask_credentials(text) == shown


def test_known_values_are_masked_wherever_they_stand_longest_first() -> None:
    redaction = Redaction(["swordfish", "swordfish-and-more", "short"])
    assert redaction.text("swordfish-and-more, swordfish, short") == f"{MASK}, {MASK}, short"


def test_what_is_shown_exactly_keeps_everything_but_its_secrets() -> None:
    redaction = Redaction(["sword\r\nfish"])
    text = "GET https://host/a?page=2 \x1b[1m\r\n tab\t"
    assert redaction.verbatim(text) == text
    secrets = f"sword\r\nfish sword\nfish {SHAPES['jwt']} https://me:pass@host/x?api_key=abcdef"
    assert redaction.verbatim(secrets) == f"{MASK} {MASK} {MASK} https://{MASK}@host/x?api_key={MASK}"


def test_a_failure_keeps_all_but_its_secrets() -> None:
    failure = Failure(
        category=Category.PORT_EXIT, blame=Blame.AGENT, message="it printed swordfish", hint="not swordfish"
    )
    shown = Redaction(["swordfish"]).failure(failure)
    assert (shown.message, shown.hint) == (f"it printed {MASK}", f"not {MASK}")
    assert (shown.category, shown.blame) == (Category.PORT_EXIT, Blame.AGENT)
    assert (
        Redaction().failure(Failure(category=Category.INTERNAL, blame=Blame.HOST, message="m")).hint is None
    )


@pytest.mark.parametrize(
    "unit", ["a-", "a.", "key_", "-eyJaaaaaaaa", "https://", "https://a?", "token ", "bearer ", "sk-", "://@"]
)
def test_masking_takes_time_in_proportion_to_the_text_whatever_an_agent_writes(unit: str) -> None:
    started = time.thread_time()

    mask_credentials(unit * (SIZE // len(unit)))

    assert time.thread_time() - started < 20


@pytest.mark.conformance("O-7")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("MY-SERVICE_TOKEN=abcd1234", "MY-SERVICE_TOKEN=***"),
        ("git+ssh://me@host/x", "git+ssh://***@host/x"),
        ("https://h/a and wss://h/b?c=1", "https://h/a and wss://h/b?***"),
        ("x-eyJhbGciOiJI.eyJzdWIiOiIx", "x-***"),
        ("eyJhbGciOiJI alone is nothing", "eyJhbGciOiJI alone is nothing"),
    ],
)
def test_credentials_are_found_wherever_they_begin(text: str, shown: str) -> None:
    assert mask_credentials(text) == shown


def test_terminal_escapes_are_removed_and_line_breaks_kept() -> None:
    text = "one\x1b[31m red\x1b]0;title\x07\r\n\ttwo\x00\x9b\u202e three"

    assert Redaction().text(text) == "one red\n\ttwo  three"


def test_a_known_value_is_found_although_control_characters_hide_it() -> None:
    assert Redaction(["hunter-2222"]).text("hun\x1b[0mter-2222") == "***"


@pytest.mark.parametrize("hider", ["\u200b", "\u034f", "\u2060", "\u3164", "\ufe0f", "\U000e0041"])
def test_a_known_value_is_found_although_characters_that_no_one_sees_part_it(hider: str) -> None:
    known = Redaction(["hunter-2222"])
    assert known.text(f"is {hider.join('hunter-2222')}.") == "is ***."
    assert known.text(f"is {hider.join('hunter-3333')}.") == f"is {hider.join('hunter-3333')}."


def test_a_failure_is_one_line_in_each_of_its_texts() -> None:
    failure = Failure(
        category=Category.COMMAND,
        blame=Blame.HOST,
        message="first\nsecond\x1b[1m hunter-2222",
        hint="do\nthis",
        where="a\x1b[2Jb.md:3",
    )

    shown = Redaction(["hunter-2222"]).failure(failure)

    assert (shown.message, shown.hint, shown.where) == ("first second ***", "do this", "ab.md:3")


def test_a_secret_of_several_lines_is_found_however_its_lines_end() -> None:
    assert Redaction(["line one\r\nline two"]).text("it is line one\nline two!") == "it is ***!"
    assert Redaction(["line one\r\nline two"]).text("it is line one\r\nline two!") == "it is ***!"


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *(
                "https://",
                "user:pw@",
                "host/x?token=abcdef",
                "Bearer ",
                "basic ",
                "abcdefgh",
                "secret",
                "=",
                ":",
            ),
            *(
                "sk-abcdefgh",
                "ghp_abcdefghijklmnopqrst",
                "AKIAABCDEFGHIJKL",
                "ATATTabcdefghijklmnopq",
                " ",
                "\n",
            ),
            *("eyJabcdefghij.abcdefghijk.abc", "\x1b[31m", "\u202e", "\x00", "\u2028", "grün", "basi"),
        ]
    )
).map("".join)


@given(FRAGMENTS | st.text())
def test_texts_that_skip_a_pattern_do_not_match_it(text: str) -> None:
    masked = redaction._JWT.sub(
        redaction._without_jwt, redaction._ADDRESS.sub(redaction._without_query, text)
    )
    for _, pattern, mask in redaction._CREDENTIALS:
        masked = pattern.sub(mask, masked)
    assert mask_credentials(text) == masked
    bare = plain_text._ESCAPES.sub("", text)
    assert plain_text.plain_text(text) == plain_text._CONTROL.sub(" ", plain_text._BREAKS.sub("\n", bare))


@pytest.mark.parametrize(
    ("secret", "written"),
    [
        ("swörd fish", "sw%C3%B6rd%20fish"),
        ("swörd fish", "sw%F6rd%20fish"),
        ("swörd<fish", "sw&#246;rd&lt;fish"),
        ("swörd<fish", "sw\\xc3\\xb6rd<fish"),
        ("swörd<fish", "sw\\u00f6rd\\u003cfish"),
        ("sword🐟fish", "sword\\ud83d\\udc1ffish"),
        ("sword🐟fish", "sword\\U0001F41Ffish"),
        ("sword'fish", "sword'\\''fish"),
        ('sword"fish', 'sword\\"fish'),
    ],
)
def test_a_known_value_is_found_in_every_notation(secret: str, written: str) -> None:
    assert Redaction([secret]).verbatim(f"a {written} b") == f"a {MASK} b"


@pytest.mark.parametrize(("text", "ticks"), [("x", 3), ("``", 3), ("```", 4), ("a ````` b\n```", 6)])
def test_a_fence_is_longer_than_every_run_of_backticks_in_it(text: str, ticks: int) -> None:
    assert fence(text).splitlines() == ["`" * ticks + "text", *text.splitlines(), "`" * ticks]
