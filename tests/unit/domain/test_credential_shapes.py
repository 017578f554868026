import pytest

from symphony.domain.failures import Blame, Category, Failure
from symphony.domain.redaction import MASK, Redaction, mask_credentials

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
