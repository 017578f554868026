"""What the acp backend decides without a process: profiles, requests, answers, updates, failures, tokens."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from symphony.agents.acp import protocol
from symphony.agents.acp.backend import AcpBackend
from symphony.agents.acp.profiles import PROFILES, AcpProfile, command_of, profile_of
from symphony.agents.acp.protocol import (
    AUTH_REQUIRED,
    Updates,
    dialect,
    message_failure,
    refusal_failure,
    turn_end,
    usage_in,
)
from symphony.agents.acp.session import OpenedSession, decide, initialize, is_own_tool, open_session, select
from symphony.agents.base import AgentError, BackendContext, prepend_envelope
from symphony.agents.events import (
    ApprovalAnswered,
    InputRequired,
    ItemFinished,
    ItemStarted,
    LogNotice,
    Text,
    TurnStatus,
    UsageUpdate,
)
from symphony.agents.registry import create_backend
from symphony.agents.wire import INVALID_PARAMS, METHOD_NOT_FOUND, ErrorResponse, RequestAnswer, ServerRequest
from symphony.config import AcpSettings, NamedAgent
from symphony.domain import Blame, Category, Tokens
from symphony.processes.local import LocalHost

GEMINI = PROFILES["gemini"]
OPTIONS = [
    {"optionId": "ever", "kind": "allow_always"},
    {"optionId": "once", "kind": "allow_once"},
    {"optionId": "no", "kind": "reject_once"},
]


def settings(**values: Any) -> AcpSettings:
    return AcpSettings(**values)


def resolved(**values: Any) -> AcpProfile:
    profile = profile_of(settings(**values))
    assert profile is not None
    return profile


def asked(method: str, **values: Any) -> ServerRequest:
    return ServerRequest(7, method, msgspec.Raw(json.dumps(values).encode()))


def refusal(
    message: str, *, code: int = -32603, method: str = "session/prompt", data: Any = None
) -> ErrorResponse:
    return ErrorResponse(1, method, code, message, msgspec.Raw(json.dumps(data).encode()))


def backend(tmp_path: Path, environ: dict[str, str] | None = None, **values: Any) -> AcpBackend:
    context = BackendContext(
        host=LocalHost(), environ=environ or {}, secret_names=frozenset(), homes=tmp_path / "homes"
    )
    made = create_backend(NamedAgent(name="mine", kind="acp", settings=settings(**values)), context)
    assert isinstance(made, AcpBackend)
    return made


# --- profiles ---


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_is_whole(name: str) -> None:
    profile = PROFILES[name]
    assert profile.install_hint
    assert profile.login_hint
    assert "HOME" in profile.home_variables
    assert all(sentence.endswith(".") for sentence in profile.broken)
    assert (profile.observed is None) == (name == "generic")
    if profile.system_text == "meta":
        assert "{envelope}" in json.dumps(profile.system_meta)
    if profile.system_text == "config":
        assert profile.config is not None
        assert "{envelope_file}" in json.dumps(profile.config[1])


def test_keys_of_the_workflow_stand_over_the_profile() -> None:
    profile = resolved(
        profile="gemini",
        command="my-agent",
        env=["MY_KEY"],
        env_values={"GEMINI_CLI_NO_RELAUNCH": "false"},
        start_timeout_ms=5,
        usage="none",
        usage_path="a.b",
        load=True,
    )
    assert (profile.command, profile.start_timeout_ms, profile.usage) == ("my-agent", 5, "none")
    assert profile.usage_path == ("a", "b")
    assert profile.load
    assert {"MY_KEY", "GEMINI_API_KEY"} <= profile.variables
    assert profile.env_values["GEMINI_CLI_NO_RELAUNCH"] == "false"
    assert profile.env_values["GEMINI_CLI_TRUST_WORKSPACE"] == "true"


def test_a_profile_can_be_told_by_keys_alone() -> None:
    profile = resolved(command="x", system_meta={"system": "{envelope}"})
    assert profile.system_text == "meta"
    assert profile.system_meta == {"system": "{envelope}"}
    assert resolved(profile="codex-acp", system_text="prompt").system_text == "prompt"


def test_the_model_is_an_argument_only_of_a_command_that_the_operator_did_not_write() -> None:
    own = settings(profile="gemini", model="a b")
    assert command_of(own, resolved(profile="gemini", model="a b")) == "gemini --acp -m 'a b'"
    written = settings(profile="gemini", model="m", command="gemini --acp")
    assert command_of(written, resolved(profile="gemini", command="gemini --acp")) == "gemini --acp"
    assert command_of(settings(profile="gemini"), GEMINI) == "gemini --acp"


def test_settings_that_make_no_agent_are_told(tmp_path: Path) -> None:
    (unknown,) = AcpBackend.check_settings(settings(profile="gemnii"), isolated=False).errors
    (bare,) = AcpBackend.check_settings(settings(), isolated=False).errors
    assert unknown.hint.startswith("did you mean gemini?")
    assert (unknown.key, bare.key) == ("profile", "command")
    assert (
        AcpBackend.check_settings(settings(profile="xx"), isolated=False)
        .errors[0]
        .hint.startswith("known profiles: claude-agent-acp")
    )
    assert AcpBackend.check_settings(settings(profile="gemini"), isolated=False).errors == ()
    wrongs: tuple[dict[str, Any], ...] = ({"profile": "gemnii"}, {})
    for values in wrongs:
        with pytest.raises(AgentError) as caught:
            backend(tmp_path, **values)
        assert caught.value.failure.category is Category.INVALID_WORKFLOW_CONFIG


@pytest.mark.parametrize("name", sorted(set(PROFILES) - {"generic"}))
def test_capabilities_are_those_of_the_profile(tmp_path: Path, name: str) -> None:
    profile, can = PROFILES[name], backend(tmp_path, profile=name).capabilities
    assert can.client_tools
    assert not can.sandbox
    assert not can.absolute_usage
    assert can.resume == profile.load
    assert can.system_block_at_start == (profile.system_text != "prompt")


def test_skills_are_looked_for_at_the_agents_home(tmp_path: Path) -> None:
    operator = backend(tmp_path, {"HOME": "/home/me"}, profile="gemini")
    assert operator.skill_roots.host[0] == Path("/home/me/.gemini/skills")
    assert operator.skill_roots.workspace == (".gemini/skills", ".agents/skills")
    assert backend(tmp_path, profile="gemini").skill_roots.host == ()
    private = backend(tmp_path, profile="gemini", home="private")
    assert private.skill_roots.host[0] == tmp_path / "homes/mine/.gemini/skills"
    assert private.profile.login_hint.startswith(f"it lives in HOME={tmp_path}/homes/mine: run `gemini`")


PAGE = Path(__file__).parents[4] / "docs" / "agents" / "acp.md"
BEGIN, END = "<!-- broken:begin -->\n", "<!-- broken:end -->\n"


def test_the_page_tells_what_is_broken() -> None:
    """`SYMPHONY_WRITE_DOCS=1` writes it."""
    page = PAGE.read_text("utf-8")
    wanted = "".join(
        f"- {profile.observed}: {' '.join(profile.broken)}\n"
        for profile in PROFILES.values()
        if profile.broken
    )
    before, rest = page.split(BEGIN)
    shown, after = rest.split(END)
    if os.environ.get("SYMPHONY_WRITE_DOCS"):
        PAGE.write_text(f"{before}{BEGIN}{wanted}{END}{after}", "utf-8")
        return
    assert shown == wanted, "write it anew with SYMPHONY_WRITE_DOCS=1"


def test_the_page_names_every_profile() -> None:
    page = PAGE.read_text("utf-8")
    assert all(f"| `{name}` |" in page for name in PROFILES)


# --- posture ---


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"profile": "gemini", "on_approval": "accept"}, "on_approval"),
        ({"profile": "gemini", "mode": "yolo"}, "mode"),
        ({"profile": "gemini", "command": "gemini --acp --yolo"}, "command"),
        ({"command": "x"}, "profile"),
        ({"profile": "gemini"}, None),
        ({"profile": "opencode", "on_approval": "block"}, None),
        ({"profile": "nobody"}, None),
    ],
)
def test_sessions_that_nothing_holds_are_told(values: dict[str, str], key: str | None) -> None:
    found = AcpBackend.check_settings(settings(**values), isolated=False).no_sandbox
    assert (found and found.key) == key
    assert AcpBackend.check_settings(settings(**values), isolated=True).no_sandbox is None


# --- requests ---


def test_a_session_offers_servers_and_the_profiles_extras() -> None:
    made = protocol.session(
        cwd=Path("/ws"), servers=[("symphony", ["/bin/x", "-a"])], extra={"_meta": {}}, session_id="s1"
    )
    server = {"name": "symphony", "command": "/bin/x", "args": ["-a"], "env": []}
    assert made == {"_meta": {}, "cwd": "/ws", "mcpServers": [server], "sessionId": "s1"}
    assert "sessionId" not in protocol.session(cwd=Path("/ws"), servers=(), extra={})


def test_a_template_is_filled_at_any_depth() -> None:
    template = {"a": [{"text": "{envelope}"}, 1], "b": ("{other}",)}
    assert protocol.fill(template, "envelope", "E{other}") == {
        "a": [{"text": "E{other}"}, 1],
        "b": ["{other}"],
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"l": ["ours"], "m": {"x": 1}}),
        ('{"l": ["theirs", "ours"], "m": {"y": 2}}', {"l": ["theirs", "ours"], "m": {"y": 2, "x": 1}}),
        ("{broken", {"l": ["ours"], "m": {"x": 1}}),
        ("[1]", {"l": ["ours"], "m": {"x": 1}}),
        ('{"m": 3}', {"l": ["ours"], "m": {"x": 1}}),
    ],
)
def test_a_configuration_is_laid_over_the_operators(given: str | None, expected: object) -> None:
    assert json.loads(protocol.config_value({"l": ["ours"]}, {"m": {"x": 1}}, given=given)) == expected


def test_the_envelope_stands_in_front_of_a_prompt() -> None:
    assert prepend_envelope(None, "do") == "do"
    assert prepend_envelope("E", "do") == "<system-context>\nE\n</system-context>\n\ndo"


# --- answers ---


@pytest.mark.parametrize(
    ("policy", "chosen", "decision"), [("accept", "once", "accept"), ("decline", "no", "decline")]
)
def test_permissions_are_chosen_by_kind(policy: Any, chosen: str, decision: str) -> None:
    answer = decide(
        asked("session/request_permission", options=OPTIONS, toolCall={"kind": "execute"}), policy
    )
    assert answer.result == {"outcome": {"outcome": "selected", "optionId": chosen}}
    assert answer.event == ApprovalAnswered(kind="execute", decision=decision)


@pytest.mark.parametrize(
    "options", [None, [], [{"kind": "allow_once"}], ["x"], [{"kind": "new", "optionId": "n"}]]
)
@pytest.mark.parametrize("policy", ["accept", "decline"])
def test_without_a_fitting_option_nothing_is_granted(options: object, policy: Any) -> None:
    answer = decide(asked("session/request_permission", options=options), policy)
    assert answer.result == {"outcome": {"outcome": "cancelled"}}
    assert answer.event == ApprovalAnswered(kind="other", decision="decline")


def test_nothing_is_granted_while_the_session_ends() -> None:
    request = asked("session/request_permission", options=OPTIONS)
    stopped = decide(request, "accept", stopping=True)
    assert (stopped.result, stopped.event) == ({"outcome": {"outcome": "cancelled"}}, None)


@pytest.mark.parametrize(
    ("title", "ours"),
    [
        ("mcp__symphony__board_comment", True),
        ("mcp.symphony.board_comment", True),
        ("symphony_board_comment", True),
        ("board_comment (symphony MCP Server)", True),
        ("mcp__other__board_comment", False),
        ("board_comment", False),
        ("mcp__symphony__board_comment; rm -rf .", False),
        ("", False),
    ],
)
def test_tools_of_ours_are_known_by_the_names_that_agents_make(title: str, ours: bool) -> None:  # noqa: FBT001
    assert is_own_tool(title, {"board_comment"}) is ours


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            {"kind": "execute", "rawInput": {"command": "rm x"}, "title": "T"},
            "approval required for execute: rm x",
        ),
        ({"title": "Edit a"}, "approval required for other: Edit a"),
        ("odd", "approval required for other"),
    ],
)
def test_a_block_asks_a_person(call: object, reason: str) -> None:
    answer = decide(asked("session/request_permission", options=OPTIONS, toolCall=call), "block")
    assert answer.event == InputRequired(reason=reason, approval=True)
    assert answer.result == {"outcome": {"outcome": "cancelled"}}


def test_a_person_decides_exactly_one_request() -> None:
    def ask(command: str, decisions: dict[str, bool]) -> RequestAnswer:
        call = {"kind": "execute", "rawInput": {"command": command}, "title": "T"}
        request = asked("session/request_permission", options=OPTIONS, toolCall=call)
        return decide(request, "block", decisions)

    event = ask("make", {}).event
    assert isinstance(event, InputRequired)
    assert event.request is not None
    for approved, decision in ((True, "accept"), (False, "decline")):
        same = ask("make", {event.request: approved})
        assert isinstance(same.event, ApprovalAnswered)
        assert same.event.decision == decision
        assert isinstance(ask("make all", {event.request: approved}).event, InputRequired)


def test_questions_go_to_a_person() -> None:
    answer = decide(asked("elicitation/create", message="Which?"), "accept")
    assert answer.result == {"action": "decline"}
    assert answer.event == InputRequired(reason="the agent asks: Which?", question="Which?")
    silent = decide(asked("elicitation/create"), "accept")
    assert silent.event == InputRequired(reason="the agent asks: a question without words")


def test_what_is_not_lent_or_known_is_refused() -> None:
    for method in ("fs/read_text_file", "fs/write_text_file", "terminal/create"):
        lent = decide(asked(method), "accept")
        assert lent.error is not None
        assert (lent.error[0], lent.event) == (METHOD_NOT_FOUND, None)
    unknown = decide(asked("new/method"), "accept")
    assert isinstance(unknown.event, LogNotice)
    broken = decide(ServerRequest(1, "session/request_permission", msgspec.Raw(b"\xff")), "accept")
    assert broken.error is not None
    assert broken.error[0] == INVALID_PARAMS


# --- updates ---


def test_words_are_gathered_until_something_else_comes() -> None:
    updates = Updates()
    for text in ("Hel", "lo"):
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        assert updates.translate(chunk) == []
    assert updates.pending_message == "Hello"
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "status": "in_progress", "title": "look"}
    assert updates.translate(call) == [Text(message="Hello"), ItemStarted(kind="other", summary="look")]
    assert updates.flush() == []


def test_long_words_are_told_in_parts_and_odd_ones_left_out() -> None:
    updates = Updates()
    long = {"sessionUpdate": "agent_message_chunk", "content": {"text": "x" * 300_000}}
    assert [type(event) for event in updates.translate(long)] == [Text]
    assert updates.translate({"sessionUpdate": "agent_message_chunk", "content": 3}) == []
    assert updates.translate({"sessionUpdate": "new_kind"}) == []
    assert updates.translate({}) == []
    assert updates.translate({"sessionUpdate": "plan"}) == []


def test_a_call_is_told_when_it_is_known_what_it_does() -> None:
    updates = Updates()
    first = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "status": "pending",
        "title": "Terminal",
        "kind": "execute",
    }
    assert updates.translate(first) == []
    second = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "rawInput": {"command": ["ls", "-l"]}}
    (started,) = updates.translate(second)
    assert isinstance(started, ItemStarted)
    assert (started.kind, started.summary) == ("execute", "ls -l")
    assert "ls" in started.arguments
    done = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c",
        "status": "failed",
        "rawOutput": {"exit_code": 2},
    }
    assert updates.translate(done) == [
        ItemFinished(kind="execute", summary="ls -l", status="failed", exit_code=2)
    ]


@pytest.mark.parametrize(
    "where",
    [
        {"rawOutput": {"metadata": {"exit": 3}}},
        {"_meta": {"terminal_exit": {"exit_code": 3}}},
        {"rawOutput": {"exitCode": 3}},
    ],
)
def test_an_exit_code_is_found_where_agents_put_it(where: dict[str, Any]) -> None:
    update = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", **where}
    finished = Updates().translate(update)[-1]
    assert isinstance(finished, ItemFinished)
    assert finished.exit_code == 3


def test_a_permission_tells_of_a_call_for_the_first_time() -> None:
    updates = Updates()
    events, title = updates.permission(
        {"toolCallId": "c", "title": "tool (symphony MCP Server)", "locations": [{"path": "/a"}]}
    )
    assert [type(event) for event in events] == [ItemStarted]
    assert title == "tool (symphony MCP Server)"
    events, title = updates.permission({"toolCallId": "d", "title": "x", "rawInput": {"command": "x"}})
    assert title == ""
    updates.forget()
    assert updates.permission({"toolCallId": "c", "title": 3, "rawInput": "text"})[1] == ""


def test_calls_that_never_end_do_not_fill_the_memory() -> None:
    updates = Updates()
    for number in range(3_000):
        updates.translate({"sessionUpdate": "tool_call", "toolCallId": str(number), "status": "in_progress"})
    first, last = (updates.permission({"toolCallId": call, "title": "x"})[0] for call in ("0", "2999"))
    assert [type(event) for event in first] == [ItemStarted], "it is forgotten"
    assert [type(event) for event in last] == []


# --- tokens ---


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (
            {
                "inputTokens": 401,
                "cachedReadTokens": 600,
                "outputTokens": 50,
                "thoughtTokens": 7,
                "totalTokens": 1051,
            },
            (1001, 50),
        ),
        (
            {
                "inputTokens": 40,
                "cachedReadTokens": 60,
                "outputTokens": 8,
                "thoughtTokens": 2,
                "totalTokens": 110,
            },
            (100, 10),
        ),
        ({"input_tokens": 3, "output_tokens": 4}, (3, 4)),
        ({"inputTokens": 0, "outputTokens": 0, "totalTokens": 258_180}, (0, 0)),
        ({"inputTokens": True, "outputTokens": 4}, (0, 4)),
    ],
)
def test_tokens_are_counted_with_what_was_cached(counts: dict[str, Any], expected: tuple[int, int]) -> None:
    found = usage_in({"usage": counts}, ("usage",))
    assert found is not None
    assert not found.absolute
    kinds = [counts.get(name, 0) for name in ("cachedReadTokens", "cachedWriteTokens", "thoughtTokens")]
    assert found.tokens == Tokens(*expected, sum(expected), *kinds)


def test_a_total_alone_counts_and_nothing_is_no_usage() -> None:
    alone = usage_in({"a": {"b": {"totalTokens": 9}}}, ("a", "b"))
    assert alone == UsageUpdate(absolute=False, tokens=Tokens(0, 0, 9))
    for result in ({}, {"usage": None}, {"usage": 3}, {"usage": {"inputTokens": -1}}):
        assert usage_in(result, ("usage",)) is None


# --- failures ---


@pytest.mark.parametrize(
    ("message", "data", "category"),
    [
        ("Request rejected (429) · Rate limit reached", None, Category.AGENT_RATE_LIMITED),
        (
            "Internal error",
            {"details": "You have hit your usage limit. Try again later."},
            Category.AGENT_USAGE_LIMIT,
        ),
        ("Your credit balance is too low", None, Category.AGENT_USAGE_LIMIT),
        ("API key not valid. Please pass a valid API key.", None, Category.AGENT_AUTH),
        ("Internal error", {"a": [{"b": "401 Unauthorized"}]}, Category.AGENT_AUTH),
        ("input exceeds the context window", None, Category.AGENT_CONTEXT_FULL),
        ("stream disconnected", None, Category.AGENT_UNAVAILABLE),
        ("open a.txt: permission denied", None, Category.TURN_FAILED),
        ("", None, Category.TURN_FAILED),
    ],
)
def test_words_of_an_error_decide_its_class(message: str, data: Any, category: Category) -> None:
    failure = refusal_failure(refusal(message, data=data), GEMINI)
    assert failure.category is category
    assert failure.retryable is (category is not Category.AGENT_AUTH)


def test_a_missing_login_has_a_code_and_a_hint() -> None:
    failure = refusal_failure(refusal("no", code=AUTH_REQUIRED, method="session/new"), GEMINI)
    assert (failure.category, failure.hint) == (Category.AGENT_AUTH, GEMINI.login_hint)
    assert failure.message == "session/new was refused: no (-32000)"


def test_a_model_that_does_not_exist_is_the_configurations_doing() -> None:
    failure = refusal_failure(refusal("models/nope is not found", data={"x": 1}), GEMINI)
    assert (failure.blame, failure.retryable) == (Blame.CONFIG, False)
    assert "acp.model" in (failure.hint or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('429: "retryDelay": "34s"', 34_000),
        ("429, retry after 1.5 s", 1_500),
        ("429 retry in 20ms", 20),
        ("429", None),
    ],
)
def test_how_long_to_wait_is_taken_from_the_words(text: str, expected: int | None) -> None:
    assert refusal_failure(refusal(text), GEMINI).retry_after_ms == expected


def test_other_refusals_are_response_errors_and_unreadable_data_is_left_out() -> None:
    answer = ErrorResponse(1, "session/set_mode", -32602, "Invalid params", msgspec.Raw(b"{"))
    assert dialect(GEMINI).refusal(answer).category is Category.RESPONSE_ERROR
    assert dialect(GEMINI).versioned


def test_a_failure_told_in_words_alone_has_its_class() -> None:
    assert (
        message_failure("last status: 429 Too Many Requests", GEMINI).category is Category.AGENT_RATE_LIMITED
    )
    assert message_failure("", GEMINI).message == "the turn used no tokens"


@pytest.mark.parametrize(
    ("reason", "status", "category"),
    [
        ("end_turn", TurnStatus.COMPLETED, None),
        ("max_turn_requests", TurnStatus.COMPLETED, None),
        ("cancelled", TurnStatus.INTERRUPTED, Category.TURN_CANCELLED),
        ("refusal", TurnStatus.FAILED, Category.TURN_FAILED),
        ("max_tokens", TurnStatus.FAILED, Category.AGENT_CONTEXT_FULL),
        ("new_reason", TurnStatus.FAILED, Category.TURN_FAILED),
        (None, TurnStatus.FAILED, Category.TURN_FAILED),
    ],
)
def test_stop_reasons(reason: object, status: TurnStatus, category: Category | None) -> None:
    ended = turn_end(reason)
    assert ended.status is status
    assert (ended.failure and ended.failure.category) == category


# --- opening ---


class Talk:
    """Answers calls from a table, and remembers them."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any]] = []

    async def __call__(self, method: str, asked: Any) -> dict[str, Any]:
        self.calls.append((method, asked))
        answer: dict[str, Any] = self.answers.get(method.replace("/", "_"), {})
        return answer


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({}, None),
        ({"loadSession": True}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, "session/resume"),
        ({"sessionCapabilities": {"resume": None}}, None),
    ],
)
async def test_how_a_session_is_gone_on_with_is_read_off_the_greeting(
    capabilities: object, expected: str | None
) -> None:
    agent = await initialize(Talk(initialize={"protocolVersion": 1, "agentCapabilities": capabilities}))
    assert (agent.name, agent.version, agent.resume_method) == ("unknown", "unknown", expected)


@pytest.mark.asyncio
async def test_a_session_without_a_name_is_none() -> None:
    with pytest.raises(AgentError, match="names no session"):
        await open_session(Talk(session_new={"sessionId": 3}), params=lambda _: {})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("facts", "values", "calls"),
    [
        (
            {"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}, {"id": "b"}]}},
            {"mode": "b"},
            [("session/set_mode", {"sessionId": "s", "modeId": "b"})],
        ),
        ({"modes": {"currentModeId": "a", "availableModes": [{"id": "a"}]}}, {"mode": "a"}, []),
        (
            {"models": {"currentModelId": "x", "availableModels": [{"modelId": "x"}, {"modelId": "y"}]}},
            {"model": "y"},
            [("session/set_model", {"sessionId": "s", "modelId": "y"})],
        ),
        (
            {
                "configOptions": [
                    3,
                    {"id": "m", "category": "model", "options": [{"options": [{"value": "y"}]}]},
                ]
            },
            {"model": "y"},
            [("session/set_config_option", {"sessionId": "s", "configId": "m", "value": "y"})],
        ),
        ({}, {}, []),
    ],
)
async def test_mode_and_model_are_set_by_what_the_agent_offers(
    facts: dict[str, Any], values: dict[str, str], calls: list[Any]
) -> None:
    talk = Talk()
    await select(
        talk, settings(**values), OpenedSession(session_id="s", details=facts), model_in_command=False
    )
    assert talk.calls == calls


@pytest.mark.asyncio
async def test_a_model_of_the_command_needs_no_choice_and_may_be_unlisted() -> None:
    listed = {"models": {"currentModelId": "m", "availableModels": [{"modelId": "other"}]}}
    talk = Talk()
    for facts in (listed, {}):
        await select(
            talk, settings(model="m"), OpenedSession(session_id="s", details=facts), model_in_command=True
        )
    assert talk.calls == []
    with pytest.raises(AgentError, match="offers no model"):
        await select(
            Talk(), settings(model="m"), OpenedSession(session_id="s", details={}), model_in_command=False
        )


@pytest.mark.asyncio
async def test_many_choices_are_shown_in_part() -> None:
    models = [{"modelId": f"model-{number}"} for number in range(20)]
    opened = OpenedSession(session_id="s", details={"models": {"availableModels": models}})
    with pytest.raises(AgentError) as caught:
        await select(Talk(), settings(model="nope"), opened, model_in_command=False)
    assert (caught.value.failure.hint or "").endswith("model-7 and 12 more")
