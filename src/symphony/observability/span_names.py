"""The names in traces, in one table.

They follow the conventions for generative AI of OpenTelemetry (open-telemetry/semantic-conventions-genai, in
development) where the meaning fits; `symphony.*` is for everything else. docs/tracing.md lists them.
"""

from enum import StrEnum
from typing import Final

CONVENTIONS: Final = "https://opentelemetry.io/schemas/gen-ai/1.37.0"
"""The version of the conventions."""


class SpanName(StrEnum):
    """The spans of a run; `TURN` and `TOOL` are followed by the name of the agent and of the tool."""

    RUN = "invoke_workflow symphony.run"
    QUEUE = "symphony.queue"
    WORKSPACE = "symphony.workspace"
    HOOK = "symphony.hook"
    SKILLS = "symphony.skills"
    AGENT_START = "symphony.agent_start"
    TURN = "invoke_agent"
    TOOL = "execute_tool"
    DELIVERY = "symphony.delivery"
    CHECK = "symphony.check"


class Attribute(StrEnum):
    """The attributes of spans."""

    OPERATION = "gen_ai.operation.name"
    WORKFLOW = "gen_ai.workflow.name"
    AGENT = "gen_ai.agent.name"
    PROVIDER = "gen_ai.provider.name"
    MODEL = "gen_ai.request.model"
    CONVERSATION = "gen_ai.conversation.id"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    TOOL = "gen_ai.tool.name"
    TOOL_CALL = "gen_ai.tool.call.id"
    SKILL = "gen_ai.skill.name"
    ERROR = "error.type"
    RUN = "symphony.run.id"
    ISSUE = "symphony.issue.identifier"
    ATTEMPT = "symphony.attempt"
    TURN = "symphony.turn"
    OUTCOME = "symphony.outcome"
    COST = "symphony.cost_usd"
    HOOK = "symphony.hook.name"
    CHECK = "symphony.check.name"
    BRANCH = "symphony.branch"
    COMMITS = "symphony.commits"
    EXIT_CODE = "process.exit.code"
    INPUT = "gen_ai.tool.call.arguments"
    RESULT = "gen_ai.tool.call.result"
    OUTPUT = "gen_ai.output.messages"
