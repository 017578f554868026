"""Every adapter that is asked over HTTP, by kind and, after a comma, by what is particular; a line each."""

from collections.abc import Mapping

from contract.asana import AsanaDesk
from contract.desk import Desk
from contract.forgejo import ForgejoDesk, GiteaDesk
from contract.github import GithubDesk, GithubProjectDesk
from contract.gitlab import GitlabDesk, GitlabOwnStatesDesk
from contract.jira import JiraDesk, JiraPlainDesk
from contract.linear import LinearDesk
from contract.redmine import RedmineDesk

DESKS: Mapping[str, type[Desk]] = {
    "linear": LinearDesk,
    "github": GithubDesk,
    "github, project": GithubProjectDesk,
    "gitlab": GitlabDesk,
    "gitlab, own states": GitlabOwnStatesDesk,
    "jira": JiraDesk,
    "jira, no properties": JiraPlainDesk,
    "forgejo": ForgejoDesk,
    "forgejo, as gitea": GiteaDesk,
    "asana": AsanaDesk,
    "redmine": RedmineDesk,
}
