"""What the client of GitHub writes by the REST API, to an emulator of other people, and what that sends.

The emulator has no GraphQL, so that nothing is found, observed or landed here.
"""

from pathlib import Path

import pytest

from contract.served import served
from harness.emulated_github import OWNER, REPO, SECRET, emulated_github
from harness.real import require_emulate
from harness.receiver import receiving
from symphony.domain import Author, PullRequest, PullState, ServiceError
from symphony.http import RateLimiters
from symphony.services.github.pulls import GithubForge

HOOK_SECRET = "correct-horse-battery"
pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


async def test_a_pull_request_is_opened_described_labelled_and_sent_to_a_reviewer(tmp_path: Path) -> None:
    with (
        emulated_github(require_emulate(), tmp_path) as github,
        served(github) as provider,
        receiving() as hook,
    ):
        github.ask("POST", "/hooks", events=["*"], config={"url": hook.url, "secret": HOOK_SECRET})
        forge = GithubForge(
            f"{OWNER}/{REPO}",
            SECRET,
            url=provider["api_url"],
            rate_limiters=RateLimiters(),
            now_ms=github.clock.now_ms,
            sleep=github.clock.sleep,
        )
        number = await forge.open(branch="symphony/SYM-1", base="main", title="Fix", body="SYM-1", draft=True)
        shown = github.ask("GET", f"/pulls/{number}")
        pull = PullRequest(
            id="",
            number=number,
            url=shown["html_url"],
            title="",
            body="",
            state=PullState.OPEN,
            draft=True,
            author=Author(login="symphony-bot"),
            head_branch="symphony/SYM-1",
            head_repo=None,
            head_sha=shown["head"]["sha"],
            base_branch="main",
        )
        await forge.update(pull, title="Fix it", body="SYM-1, well")
        await forge.add_labels(pull, ["symphony"])
        await forge.request_reviews(pull, ["ann"])
        github.ask("POST", f"/issues/{number}/comments", body="ready")

        shown = github.ask("GET", f"/pulls/{number}")
        assert (shown["title"], shown["body"], shown["draft"]) == ("Fix it", "SYM-1, well", True)
        assert (shown["head"]["ref"], shown["base"]["ref"]) == ("symphony/SYM-1", "main")
        assert [each["login"] for each in shown["requested_reviewers"]] == ["ann"]
        assert [each["name"] for each in github.ask("GET", f"/issues/{number}/labels")] == ["symphony"]
        hook.wait_for(5)
        with pytest.raises(ServiceError) as caught:
            await forge.request_reviews(pull, ["nobody"])
        assert caught.value.failure.hint
    for _, headers, body in hook.requests:
        delivery = GithubForge.webhooks.verify(headers, body, secret=HOOK_SECRET, now_ms=0)
        assert delivery.is_news(lambda _: False)
        assert len(delivery.keys) == 2, "its body, and its id"
    assert {headers["x-github-event"] for _, headers, _ in hook.requests} >= {"pull_request", "issue_comment"}
