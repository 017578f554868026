"""Every adapter that is asked over HTTP, by kind and, after a comma, by what is particular; a line each."""

from collections.abc import Mapping

from contract.desk import Desk
from contract.github import GithubDesk, GithubProjectDesk
from contract.linear import LinearDesk
from contract.redmine import RedmineDesk

DESKS: Mapping[str, type[Desk]] = {
    "linear": LinearDesk,
    "github": GithubDesk,
    "github, project": GithubProjectDesk,
    "redmine": RedmineDesk,
}
