"""Which notifications there are, what they say, and that nothing in them is taken for markup."""

import base64
import hmac
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from typing_extensions import override

from harness.chronicle import SKILLS
from harness.scheduling import Story, make_failure, make_issue, tracker_down
from published.schemas import conforms_to
from symphony.config import NotifySettings
from symphony.daemon.notify.notifications import (
    Notification,
    decide,
    describe,
    due_reminders,
    headline,
    is_current,
    of_pull_request,
    of_skill_problems,
    public,
    quiet_for,
)
from symphony.daemon.notify.targets import TargetError, document, resolve_target, signed, slack_message
from symphony.domain import Category, DeliveredBranch, Issue, Redaction, WorkSize
from symphony.journal.model import PullRequestRecord
from symphony.scheduler import (
    ClaimKind,
    Command,
    DrainAsked,
    Event,
    Outcome,
    OutcomeKind,
    Recovered,
    RunEnded,
    StoredClaim,
)

HOSTILE = "<!channel> <https://evil.example|log in> *now* @all `x` \u202e\x1b[31m https://evil.example"


class News(Story):
    """A story whose notifications are collected."""

    def __init__(self, *issues: Issue, **settings: Any) -> None:
        super().__init__(*issues, **settings)
        self.news: list[Notification] = []

    @override
    def _step(self, fact: Event) -> tuple[Command, ...]:
        before = self.state
        commands = super()._step(fact)
        self.news += decide(before, fact, self.state, commands, at_wall_ms=self.now)
        return commands

    @property
    def events(self) -> list[tuple[str, str | None]]:
        return [(each.event, each.issue.identifier if each.issue else None) for each in self.news]

    def current(self) -> list[str]:
        return [each.event for each in self.news if is_current(each, self.state, self.now)]


def test_a_question_and_a_block_are_told_until_somebody_acts() -> None:
    story = News(make_issue("1"), make_issue("2"), max_attempts_without_progress=1).begin()
    story.streams("1").ends(
        "1",
        OutcomeKind.INPUT_REQUIRED,
        make_failure(category=Category.TURN_INPUT_REQUIRED),
        question="Red or blue?",
    )
    story.streams("2").fails("2", progress=False)
    assert story.events == [("question", "SYM-1"), ("blocked", "SYM-2")]
    assert story.news[0].message == "Red or blue?"
    assert (story.news[1].code, bool(story.news[1].hint)) == ("no_progress", True)
    assert story.current() == ["question", "blocked"]
    story.put("1", title="Another title")
    story.put("2", state="Done")
    story.advance(60_000)
    assert "blocked" not in story.current()


def test_delivered_work_is_told_once_it_is_ready() -> None:
    story = News(make_issue("1")).begin()
    story.streams("1").put("1", state="Review")
    delivered = DeliveredBranch(work=WorkSize(commits=2), branch="symphony/SYM-1", head="abc")
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, progress=True, delivered=delivered, summary="Done so.")
    story.turn_ends("1").tell(RunEnded(run_id=story.run_id("1"), outcome=outcome))
    story.advance(2_000)
    assert story.events == [("ready", "SYM-1")]
    assert story.news[0].message == "2 commits on symphony/SYM-1: Done so."
    assert story.current() == ["ready"]
    story.put("1", state="Done")
    story.advance(700_000)
    assert story.current() == []


def test_the_daemon_tells_of_its_tracker_its_agents_its_budget_and_its_end() -> None:
    story = News(make_issue("1"), max_tokens_per_day=100).begin()
    story.streams("1", total_tokens=150, turn_count=1)
    limit = make_failure(category=Category.AGENT_RATE_LIMITED, retry_after_ms=3_600_000)
    story.fails("1", limit)
    story.slow = True
    for _ in range(2):
        story.advance(40_000).fail_poll(tracker_down())
    assert story.events == [("budget", None), ("agent_limited", None), ("tracker_down", None)]
    assert story.current() == ["budget", "agent_limited", "tracker_down"]
    assert story.news[1].subject == "codex"
    story.tell(DrainAsked())
    assert story.current()[-1] == "daemon_down_soon"


def test_what_a_predecessor_left_is_no_news_but_an_old_question_is_told_again() -> None:
    story = News()
    failure = make_failure(category=Category.TURN_INPUT_REQUIRED)
    story.board["1"] = make_issue("1")
    claim = StoredClaim(
        issue=make_issue("1"), kind=ClaimKind.BLOCKED, failure=failure, question="Which?", since_ms=-5_000
    )
    story.tell(Recovered(claims=(claim,)))
    assert story.news == []

    def due(told: dict[str, int], now_ms: int) -> list[Notification]:
        return [
            *due_reminders(
                story.state, told, remind_after_ms=10_000, now_ms=now_ms, wall_ms=1_000_000 + now_ms
            )
        ]

    assert due({}, 4_000) == []
    (reminder,) = due({}, 5_000)
    assert (reminder.event, reminder.reminder, reminder.message) == ("question", True, "Which?")
    assert "still asks" in describe(reminder)
    assert due({"1": 1_004_000}, 13_000) == []
    assert len(due({"1": 1_004_000}, 14_000)) == 1


def many(count: int) -> list[Notification]:
    story = News(*(make_issue(str(n)) for n in range(count)), max_concurrent_agents=count).begin()
    for n in range(count):
        failure = make_failure(category=Category.TURN_INPUT_REQUIRED)
        story.ends(str(n), OutcomeKind.INPUT_REQUIRED, failure, question="Which?")
    return story.news


def test_a_burst_is_one_line() -> None:
    assert headline(many(12)) == "12 issues wait for you"
    assert headline(many(1)) == "1 issue waits for you"
    skills = of_skill_problems(SKILLS.problems, 0)
    assert headline([*many(2), skills]) == "2 issues wait for you; skills cannot be used"
    assert "bad/SKILL.md" in skills.message


@pytest.mark.parametrize(
    ("hours", "time", "left_h"),
    [
        (None, "23:00", 0),
        ("22:00-07:00", "23:00", 8),
        ("22:00-07:00", "06:00", 1),
        ("22:00-07:00", "07:00", 0),
        ("22:00-07:00", "12:00", 0),
        ("09:00-17:00", "12:00", 5),
        ("00:00-00:00", "12:00", 0),
    ],
)
def test_quiet_hours_may_pass_midnight(hours: str | None, time: str, left_h: int) -> None:
    now = datetime.fromisoformat(f"2026-03-01T{time}:00+00:00")
    assert quiet_for(hours, now) == timedelta(hours=left_h)


def hostile() -> Notification:
    secret = "tok-secret-value-1"
    issue = make_issue("1", identifier="SYM-1", title=HOSTILE, url="https://evil.example/|x> <!here>")
    story = News(issue).begin()
    failure = make_failure(category=Category.TURN_INPUT_REQUIRED)
    story.ends("1", OutcomeKind.INPUT_REQUIRED, failure, question=f"{HOSTILE}\n# {secret}")
    return public(story.news[0], Redaction({secret}))


def target(**values: Any) -> NotifySettings:
    return NotifySettings.model_validate(
        {"name": "one", "kind": "slack", "url": "https://x.example", **values}
    )


def test_hostile_text_forms_no_link_no_mention_and_no_markup_in_slack() -> None:
    message = slack_message(
        resolve_target(target(page_url="https://page.example/"), {}), [hostile()], dropped=3
    )
    links = []
    for block in message["blocks"]:
        if block["type"] == "context":
            links += [element["text"] for element in block["elements"]]
        else:
            assert block["text"]["type"] == "plain_text"
    assert links == ["<https://page.example/issues/SYM-1|Page>"]
    assert message["text"] == "1 issue waits for you"
    sent = json.dumps(message, ensure_ascii=False)
    assert "tok-secret-value-1" not in sent
    assert not any(mark in sent for mark in ("\u202e", "\\u001b", "\\n"))
    assert "and 3 more" in sent


def test_a_webhook_is_signed_and_says_what_its_schema_says() -> None:
    key = base64.b64encode(b"0123456789abcdef").decode()
    one = resolve_target(target(kind="webhook", secret="$KEY"), {"KEY": f"whsec_{key}"})
    found = document(one, [hostile()], dropped=0, now_ms=1_772_366_405_000)
    conforms_to("notification", json.loads(msgspec.json.encode(found)))
    assert found.notifications[0].issue is not None
    assert found.notifications[0].issue.issue_url is None
    assert found.id == document(one, [hostile()], dropped=0, now_ms=1).id
    headers = signed(one, b'{"a": 1}', message_id=found.id, now_ms=1_772_366_405_000)
    mac = hmac.new(b"0123456789abcdef", f'{found.id}.1772366405.{{"a": 1}}'.encode(), "sha256").digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == (found.id, "1772366405")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"url": "hooks.example/x"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https:///x"}, "url"),
        ({"url": "https://x.example:99999/"}, "url"),
        ({"url": "$NOT_SET"}, "url"),
        ({"url": None}, "url"),
        ({"kind": "webhook", "secret": "$NOT_SET"}, "secret"),
        ({"kind": "webhook", "secret": "whsec_%%%"}, "secret"),
        ({"kind": "webhook", "secret": "whsec_"}, "secret"),
        ({"kind": "webhook", "secret": "whsec_MTIzNDU2Nzg5MDEyMzQ1"}, "secret"),  # 15 bytes
        ({"kind": "webhook", "secret": "0123456789abcde"}, "secret"),
        ({"kind": "command"}, "command"),
        ({"kind": "command", "command": ["no-such-program-here"]}, "command"),
    ],
)
def test_a_target_that_cannot_work_says_which_key_is_wrong_and_not_its_value(
    values: dict[str, Any], key: str
) -> None:
    with pytest.raises(TargetError) as raised:
        resolve_target(target(**values), {"PATH": "/usr/bin:/bin"})
    assert raised.value.key == key
    assert raised.value.hint
    assert "example" not in str(raised.value)


def test_a_pull_request_that_needs_a_person_is_news() -> None:
    record = PullRequestRecord(issue=make_issue("1"), forge="f", branch="b", head="c", code="foreign_head")
    assert record.needs_you
    news = of_pull_request(replace(record, message="somebody pushed"), 7)
    assert (news.event, news.code, news.at_wall_ms) == ("pull_request", "foreign_head", 7)
    assert "somebody pushed" in describe(news)
    assert is_current(news, News().state, 0)
    assert headline([news]) == "1 issue waits for you"
    assert not replace(record, code="checks_pending").needs_you
