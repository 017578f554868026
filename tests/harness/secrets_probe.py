"""What a shell call in an agent may never print: planted where a daemon has it, looked for where it is shown.

For every backend: `plant` in the agent's home, put `Planted.environ` into the daemon's variables, let the
agent run `PROBE` in its shell, and ask `leaks` of everything that it, or its model, was shown.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from symphony.agents.environment import ALL_CREDENTIALS

__all__ = ["PROBE", "TRACKER_SECRETS", "Planted", "plant"]

TRACKER_SECRETS = frozenset({"LINEAR_API_KEY", "GITHUB_TOKEN", "SYMPHONY_OPERATOR_TOKEN"})
_OTHERS = frozenset({"SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "GIT_ASKPASS", "NPM_TOKEN"})

PROBE = (
    "env; for each in /proc/[0-9]*; do "
    'grep -qs "SYMPHONY_RUN_ID=$SYMPHONY_RUN_ID" $each/environ || continue; '
    "for file in environ cmdline; do tr '\\0' '\\n' < $each/$file; done; done 2> /dev/null; true"
)
"""A shell command that prints its own variables, and variables and arguments of all processes of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Variables with values that occur nowhere else; `own` are those that the agent is to have."""

    environ: Mapping[str, str]
    profile: str
    own: frozenset[str]

    def leaks(self, shown: str | Iterable[str]) -> list[str]:
        """The names of what was planted, is not the agent's own, and stands in what was shown."""
        text = shown if isinstance(shown, str) else "\n".join(shown)
        marks = {name: _mark(name) for name in self.environ if name not in self.own}
        return sorted(name for name, mark in marks.items() if mark in text)


def plant(
    home: Path, *, own: Collection[str] = (), in_profile: Collection[str] = ALL_CREDENTIALS | TRACKER_SECRETS
) -> Planted:
    """Values for every known credential, secrets of the tracker, and more of a person; a profile in `home`.

    The profile exports `in_profile` again, as many a person's does.
    """
    names = ALL_CREDENTIALS | TRACKER_SECRETS | _OTHERS
    lines = [f"export {name}={shlex.quote(_value(name))}" for name in sorted(in_profile)]
    profile = "\n".join(lines) + "\n"
    home.mkdir(parents=True, exist_ok=True)
    (home / ".bash_profile").write_text(profile, encoding="utf-8")
    return Planted(environ={name: _value(name) for name in names}, profile=profile, own=frozenset(own))


def _mark(name: str) -> str:
    return f"planted-{name.lower().replace('_', '-')}"


def _value(name: str) -> str:
    return f"{_mark(name)}-value"
