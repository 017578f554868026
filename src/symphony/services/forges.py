"""The clients for pull requests by `forge.kind`."""

from collections.abc import Mapping
from typing import Final

from symphony.config import ForgeSettings, reference_name, resolve_secret
from symphony.domain import Blame, Category, Failure, SymphonyError
from symphony.http import is_loopback
from symphony.services.forgejo.pulls import ForgejoForge
from symphony.services.github.pulls import GithubForge
from symphony.services.gitlab.pulls import GitlabForge
from symphony.services.pulls import Forge

FORGES: Final[Mapping[str, type[GithubForge | GitlabForge | ForgejoForge]]] = {
    "github": GithubForge,
    "gitlab": GitlabForge,
    "forgejo": ForgejoForge,
}


def connect_forge(settings: ForgeSettings, environment: Mapping[str, str]) -> Forge:
    """The client for these settings; sends nothing yet.

    Raises:
        SymphonyError: something is missing.
    """
    if settings.kind is None or settings.repo is None:
        missing = "kind" if settings.kind is None else "repo"
        raise _invalid(f"forge.{missing} is not set", hint="docs/forges.md describes the settings")
    token = resolve_secret(settings.token, environment=environment)
    if token is None:
        name = reference_name(settings.token)
        raise _invalid(
            "forge.token has no token",
            hint=f"set {name} in the environment" if name else "write $NAME there and set the variable",
            category=Category.MISSING_TRACKER_SECRET,
        )
    if settings.url is not None and settings.url.startswith("http://") and not is_loopback(settings.url):
        raise _invalid("forge.url is plain http to another machine", hint="use https: a token goes there")
    return FORGES[settings.kind](settings.repo, token.reveal(), url=settings.url)


def _invalid(
    message: str, *, hint: str, category: Category = Category.INVALID_WORKFLOW_CONFIG
) -> SymphonyError:
    failure = Failure(category=category, blame=Blame.CONFIG, message=message, retryable=False, hint=hint)
    return SymphonyError(failure)
