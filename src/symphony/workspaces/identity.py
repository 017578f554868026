"""Under which names sessions commit: as a person who commits in the repository would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from symphony.workspaces.git import Git, GitError, config_value

DEFAULT_IDENTITY: Final = {"user.name": "Symphony Agent", "user.email": "symphony@localhost"}
"""Of sessions whose user has told git no name."""

_KEYS: Final = r"^(user|author|committer)\.(name|email)$"


async def identity_at(git: Git, place: Path) -> Mapping[str, str]:
    """The names and addresses for commits in a repository, by their keys in git's configuration.

    The configuration of the repository, of the user and of the system is read there, so that conditions hold
    (`includeIf`).
    """
    try:
        listing = await git.trusted("-C", place, "config", "-z", "--get-regexp", _KEYS)
    except GitError:  # this is how git reports that there is none
        return {}
    entries = (entry.partition("\n") for entry in listing.decode("utf-8", "replace").split("\0"))
    return {key: value for key, _, value in entries if value}


def identity_config(identity: Mapping[str, str]) -> str:
    """The sections of a configuration file that state an identity, or the default one.

    It is written into the clone, because an agent may run with another home than the user.
    """
    named = {**DEFAULT_IDENTITY, **identity}
    entries = [(*key.split("."), config_value(value)) for key, value in named.items()]
    return "".join(f"[{section}]\n\t{name} = {value}\n" for section, name, value in entries)
