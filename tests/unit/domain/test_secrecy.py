"""A secret is a secret, and a word is not one."""

from __future__ import annotations

import base64
import random
import string

import pytest

from symphony.domain import MASK, Redaction, secret_parts

SLACK = "T024BE7LD/B0AB12CD3/XXabcd1234efgh5678IJKL90"
GUID = "9a8b7c6d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        (f"https://hooks.slack.com/services/{SLACK}", [*SLACK.split("/"), SLACK]),
        ("https://discord.com/api/webhooks/123456789012345678/aB3-xyz_Qwer1234", ["aB3-xyz_Qwer1234"]),
        (
            f"https://acme.webhook.office.com/webhookb2/{GUID}@{GUID}/IncomingWebhook/{'0a1b' * 8}/{GUID}",
            [GUID],
        ),
        ("https://hooks.zapier.com/hooks/catch/1234567/abc12de/", ["1234567/abc12de"]),
        ("https://ntfy.sh/alerts-x8f3kq", ["alerts-x8f3kq"]),
        ("https://chat.example.com/hooks/xqz7p9o8r3fmdk5t1w", ["xqz7p9o8r3fmdk5t1w"]),
        ("https://api.telegram.org/bot123456:ABC-DEF1234ghIkl/send", ["bot123456:ABC-DEF1234ghIkl"]),
        ("https://prod-27.logic.azure.com/workflows/abc/invoke?sig=hQ_abc%2F123XYZ", ["hQ_abc/123XYZ"]),
        ("https://me:Hunter2x@host/hook", ["Hunter2x"]),
        ("https://me:p%40ss%2Fword1@host/hook", ["p@ss/word1"]),
        ("https://ghp_abcdefgh12345678@github.com/o/r", ["ghp_abcdefgh12345678"]),
        ("https://host/#a1b2c3d4e5", ["a1b2c3d4e5"]),
        ("https://en12abcd34efgh.m.pipedream.net", ["en12abcd34efgh"]),
    ],
)
def test_the_credentials_of_an_address_are_secret(address: str, secrets: list[str]) -> None:
    for named in (True, False):
        shown = Redaction(secret_parts(address, named=named)).verbatim(f"it is {address}")
        assert [secret for secret in secrets if secret in shown] == []
        assert MASK in shown


@pytest.mark.parametrize(
    "address",
    [
        "https://hooks.example.com/symphony",
        "http://127.0.0.1:8080/symphony/hook",
        "https://example.com/team-alerts/build_status/v2",
        "https://example.com/api/IncomingWebhook?room=general-chat&page=2",
        "https://ntfy.sh/symphony-alerts",
        "https://packages.example.org/",
        "https://eu-central-1.example.com/oauth2/callback",
    ],
)
def test_an_address_of_words_has_no_secret(address: str) -> None:
    assert secret_parts(address, named=True) == frozenset()
    assert secret_parts(address, named=False) == frozenset()


@pytest.mark.parametrize(
    "value",
    [
        "hunter22",
        "Password123",
        "correct-horse-battery-staple",
        "abcd efgh ijkl mnop",
        "xkqzjwvp",
        "0123456789",
    ],
)
def test_a_credential_by_its_name_is_secret_also_as_a_phrase(value: str) -> None:
    assert secret_parts(value, named=True) == {value}


@pytest.mark.parametrize(
    "value",
    ["symphony", "PLACEHOLDER", "dev-token", "not_needed", "development", "hunter2", "", "eu-central-1"],
)
def test_words_and_short_texts_are_no_secrets_whatever_their_name(value: str) -> None:
    assert secret_parts(value, named=True) == frozenset()
    assert secret_parts(value, named=False) == frozenset()


@pytest.mark.parametrize(
    "value",
    ["payments-service-backend-team", "/usr/local/lib/python", "/opt/svc/data", "hello world of tests"],
)
def test_a_value_without_such_a_name_is_secret_only_if_it_looks_random(value: str) -> None:
    assert secret_parts(value, named=False) == frozenset()
    for secret in ("Zx9q81Lmb2", "a1b2c3d4-e5f6", "/9j4AAQSkZJRgABAQ", "xkqzjwvp"):
        assert secret_parts(secret, named=False) != frozenset()


def test_the_token_behind_the_scheme_of_a_header_is_secret_without_it_too() -> None:
    assert secret_parts("Bearer abcdefgh12345", named=True) == {"Bearer abcdefgh12345", "abcdefgh12345"}


def test_random_texts_are_secrets() -> None:
    choose = random.Random(38)  # noqa: S311 - the same texts in every run
    for alphabet in (
        string.ascii_letters + string.digits,
        string.hexdigits[:16],
        string.ascii_uppercase + "234567",
    ):
        for chars in (20, 32, 64):
            texts = ["".join(choose.choices(alphabet, k=chars)) for _ in range(300)]
            assert [text for text in texts if not secret_parts(text, named=True)] == []
            assert [text for text in texts if not secret_parts(text, named=False)] == []
            hooks = [f"https://example.com/hooks/{text}" for text in texts]
            assert [hook for hook in hooks if not secret_parts(hook, named=False)] == []


@pytest.mark.parametrize("word", ["symphony", "hunter2"])
def test_a_credential_that_is_a_word_is_masked_where_it_is_one(word: str) -> None:
    redaction = Redaction(words=[word])
    assert redaction.text(f"{word} and '{word}' at https://example.com/{word}") == (
        f"{word} and '{word}' at https://example.com/{word}"
    )
    basic = base64.b64encode(f"me:{word}".encode()).decode()
    for written in (f"password={word}", f"https://me:{word}@host/x", f"Basic {basic}", word.encode().hex()):
        shown = redaction.text(f"it said {written}")
        assert MASK in shown
        assert word not in shown


def test_an_address_that_cannot_be_read_counts_as_any_other_text() -> None:
    address = "https://[::1/x9k2m4p7q8r5"
    assert secret_parts(address, named=False) == {address}
