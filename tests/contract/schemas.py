"""The vendors' own schemas, where `SYMPHONY_VENDOR_SCHEMAS` names their folder."""

import os
from pathlib import Path

SCHEMAS = {
    "linear": "linear.schema.graphql",
    "github": "github-rest.slice.json",
    "jira": "jira-cloud.slice.json",
    "asana": "asana.slice.json",
    "forgejo": "forgejo.slice.json",
}
"""The file of each vendor that publishes one."""

NO_SCHEMAS = "the schemas of the vendors are not part of the repository (set SYMPHONY_VENDOR_SCHEMAS)"


GITHUB_GRAPHQL = "SYMPHONY_GITHUB_GRAPHQL"
"""The variable that names GitHub's GraphQL schema, which npm has in `@octokit/graphql-schema`."""

NO_GITHUB_GRAPHQL = "GraphQL schema of GitHub", "npm: @octokit/graphql-schema, in SYMPHONY_GITHUB_GRAPHQL"


def schema_file(name: str) -> Path | None:
    """The file of a vendor, or None where there is none."""
    if name == GITHUB_GRAPHQL:
        file = os.environ.get(GITHUB_GRAPHQL)
        return Path(file) if file and Path(file).is_file() else None
    folder = os.environ.get("SYMPHONY_VENDOR_SCHEMAS")
    path = Path(folder or "/nonexistent") / name
    return path if folder and path.is_file() else None
