"""A real Redmine that tests may write to: a project of its own for each test, and accounts in it."""

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from contract.redmine_shapes import check_shape
from symphony.http import HttpxTransport, RawResponse, Send

__all__ = ["CheckedTransport", "LiveRedmine"]


class CheckedTransport:
    """The real wire; each answer is held against the shapes that the service in memory is held against."""

    def __init__(self) -> None:
        self._wire = HttpxTransport()
        self.statuses: list[int] = []

    @asynccontextmanager
    async def session(self, base: str) -> AsyncIterator[Send]:
        async with self._wire.session(base) as send:

            async def checked(
                method: str, address: str, headers: Mapping[str, str], content: bytes | None
            ) -> RawResponse:
                reply = await send(method, address, headers, content)
                body = msgspec.json.decode(reply.content) if reply.content else None
                check_shape(method, urlsplit(address).path, reply.status, body, strict=False)
                self.statuses.append(reply.status)
                return reply

            yield checked


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRedmine:
    """One project and, beside the administrator, accounts with a role in it."""

    address: str
    admin_key: str
    project: str

    @classmethod
    def begin(cls, address: str, admin_key: str) -> "LiveRedmine":
        """A new public project with issues."""
        name = f"symphony-{uuid.uuid4().hex[:12]}"
        redmine = cls(address=address, admin_key=admin_key, project=name)
        redmine.ask(
            "POST",
            "/projects.json",
            project={
                "name": name,
                "identifier": name,
                "is_public": True,
                "enabled_module_names": ["issue_tracking"],
            },
        )
        return redmine

    def end(self) -> None:
        """Delete the project with all its issues."""
        self.ask("DELETE", f"/projects/{self.project}.json")

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """One request as the administrator."""
        headers = {"x-redmine-api-key": self.admin_key}
        wire = httpx.HTTPTransport(verify=False)  # certificates take longer to load than the answer
        with httpx.Client(transport=wire, timeout=60) as client:
            answer = client.request(method, f"{self.address}{path}", headers=headers, json=body or None)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text[:300]}"
        return answer.json() if answer.content.strip() else None

    def account(self, role: str) -> str:
        """A new account with this role in the project; its key."""
        name = uuid.uuid4().hex[:12]
        made = self.ask(
            "POST",
            "/users.json",
            user={
                "login": name,
                "firstname": "Test",
                "lastname": name,
                "mail": f"{name}@example.test",
                "password": uuid.uuid4().hex,
            },
        )["user"]
        roles = {each["name"]: each["id"] for each in self.ask("GET", "/roles.json")["roles"]}
        self.ask(
            "POST",
            f"/projects/{self.project}/memberships.json",
            membership={"user_id": made["id"], "role_ids": [roles[role]]},
        )
        return str(made["api_key"])

    def issue(self, subject: str, **fields: Any) -> str:
        """A new issue; its id."""
        wanted = {"project_id": self.project, "subject": subject, **fields}
        return str(self.ask("POST", "/issues.json", issue=wanted)["issue"]["id"])

    def block(self, issue_id: str, by: str) -> None:
        """Let an issue be blocked by another."""
        relation = {"issue_to_id": int(issue_id), "relation_type": "blocks"}
        self.ask("POST", f"/issues/{by}/relations.json", relation=relation)

    def show(self, issue_id: str) -> Any:
        """The issue with its history."""
        return self.ask("GET", f"/issues/{issue_id}.json?include=journals")["issue"]

    def notes(self, issue_id: str) -> list[str]:
        """The texts of its notes."""
        return [entry["notes"] for entry in self.show(issue_id)["journals"] if entry["notes"]]
