"""The pytest plugin: the scripted agent as a fixture.

pytest loads a plugin before it measures coverage and before it knows whether any test wants it. So importing
this module imports nothing else of Symphony; the fixture imports the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def symphony_scripted_agent() -> Callable[..., str]:
    """Give the scripted agent's command for `codex.command`: `symphony_scripted_agent("--ignore-eof")`."""
    from symphony.testing.scripted_agent import command  # noqa: PLC0415 - the plugin is light until it is used

    return command
