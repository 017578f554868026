"""Issues are the lines of a file: an identifier, a state and a title (`L-1 Todo Greet people`)."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import anyio
from typing_extensions import override

from symphony.config import TrackerSettings
from symphony.domain import Blame, Category, Failure, Issue, ToolResult, ToolSpec, normalise_state
from symphony.trackers.base import ConfigProblem, TrackerConfigError, TrackerError
from symphony.trackers.registry import States, TrackerContext, TrackerKind

DONE = ToolSpec(
    name="lines_done",
    description="Set the state of your issue to Done.",
    input_schema={"type": "object", "properties": {}, "additionalProperties": False},
)


class LinesTracker:
    """One file, which people may edit at any time."""

    def __init__(self, file: anyio.Path) -> None:
        self._file = file

    async def fetch_issues_by_states(self, states: Sequence[str]) -> Sequence[Issue]:
        wanted = {normalise_state(state) for state in states}
        return [issue for issue in await self._read() if normalise_state(issue.state) in wanted]

    async def fetch_issues_by_ids(self, ids: Collection[str]) -> Sequence[Issue]:
        return [issue for issue in await self._read() if issue.id in ids]

    def secret_environment_names(self) -> frozenset[str]:
        return frozenset()

    def agent_tool_specs(self) -> tuple[ToolSpec, ...]:
        return (DONE,)

    async def execute_agent_tool(
        self, name: str, arguments: Mapping[str, Any], *, issue: Issue
    ) -> ToolResult:
        lines = [
            f"{each.id} {'Done' if each.id == issue.id else each.state} {each.title}\n"
            for each in await self._read()
        ]
        await self._file.write_text("".join(lines))
        return ToolResult.of({"issue": issue.identifier, "state": "Done"})

    async def changes(self) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    async def _read(self) -> list[Issue]:
        try:
            text = await self._file.read_text()
        except OSError as error:
            message = f"{self._file} cannot be read: {error.strerror}"
            failure = Failure(category=Category.TRACKER_REQUEST, blame=Blame.TRACKER, message=message)
            raise TrackerError(failure) from error
        parts = [line.split(maxsplit=2) for line in text.splitlines() if line.count(" ") > 1]
        return [
            Issue(id=name, identifier=name, state=state, title=title, dispatchable=True)
            for name, state, title in parts
        ]


class LinesKind(TrackerKind):
    provider_keys = ("file",)
    tools = (DONE.name,)

    @override
    def create(self, settings: TrackerSettings, context: TrackerContext) -> LinesTracker:
        return LinesTracker(_file(settings, context))

    @override
    def states(self, settings: TrackerSettings, context: TrackerContext) -> States:
        _file(settings, context)
        return States(
            active=("Todo",) if settings.active_states is None else settings.active_states,
            terminal=("Done",) if settings.terminal_states is None else settings.terminal_states,
        )


def _file(settings: TrackerSettings, context: TrackerContext) -> anyio.Path:
    name = settings.provider.get("file", "issues.txt")
    if isinstance(name, str) and name:
        return anyio.Path(context.base_dir / name)
    failure = Failure(
        category=Category.INVALID_TRACKER_CONFIG,
        blame=Blame.CONFIG,
        message="tracker.provider.file must be the name of a file",
        retryable=False,
    )
    raise TrackerConfigError([ConfigProblem(location=("tracker", "provider", "file"), failure=failure)])


KIND = LinesKind()
