"""Pull requests of a service: what the daemon asks (`Forge`), and what the clients of all services share."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

import anyio
import msgspec

from symphony.domain import Blame, Category, Check, Failure, PullRequest, ServiceError, one_line
from symphony.http import (
    SHARED,
    Flow,
    Http,
    HttpResponse,
    HttpxTransport,
    Page,
    PageGuard,
    Purpose,
    Query,
    RateLimiters,
    Request,
    ServiceProfile,
    Transport,
    all_pages,
    wall_ms,
)
from symphony.http.fields import MalformedRecordError, dig
from symphony.services.logs import read_tail
from symphony.trackers.webhooks import WebhookScheme

T = TypeVar("T")

# --- what the daemon asks --------------------------------------------------------------------------------


class Landing(StrEnum):
    """How a change is merged, and what `Forge.arm` did."""

    AUTO = "auto"
    QUEUE = "queue"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeAccess:
    """What a token may do.

    Attributes:
        login: whose it is.
        missing: what it lacks to open, answer and land, in words; empty if nothing is known to be missing.
        limits: what no token can do on this forge, in words.
    """

    login: str
    missing: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


class Forge(Protocol):
    """One repository. Every method raises `ServiceError`; a read is repeated, a write never is."""

    async def find(self, branch: str) -> Sequence[PullRequest]:
        """All pull requests, open or not, newest first, whose head is this branch of this repository.

        They have no checks, reviews and comments (`complete` is false), and not every forge says here
        whether their authors may write.
        """
        ...

    async def find_onto(self, branch: str) -> Sequence[int]:
        """The numbers of open pull requests, at least of one, that are to be merged into this branch."""
        ...

    async def open(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> int:
        """Open one; its number. Look for an existing one first: `find`."""
        ...

    async def update(self, pull: PullRequest, *, title: str, body: str) -> None:
        """Change the text."""
        ...

    async def observe(self, numbers: Sequence[int], *, fresh: bool = False) -> Mapping[int, PullRequest]:
        """Snapshots by number, without those that do not exist.

        What the forge confirms as unchanged is not sent again, unless a snapshot must be `fresh`: what
        decides on a merge. A malformed part makes its pull request incomplete. The numbers of those
        that are malformed themselves are the `culprits` of the error; without them, the others are told.
        """
        ...

    async def log_tail(self, check: Check) -> str | None:
        """The last 100 lines of a check's log, as plain text without credentials; `None` if it has none."""
        ...

    async def reply(self, pull: PullRequest, thread_id: str, body: str) -> None:
        """Answer in a thread."""
        ...

    async def resolve(self, pull: PullRequest, thread_id: str) -> bool:
        """Mark a thread as resolved; false on a forge where only people can."""
        ...

    async def arm(self, pull: PullRequest, landing: Landing) -> Landing:
        """Let the forge merge it when its rules allow, or at once if they do already.

        The forge refuses if the head is no longer `pull.head_sha`.
        """
        ...

    async def disarm(self, pull: PullRequest) -> None:
        """Take back `arm`."""
        ...

    async def add_labels(self, pull: PullRequest, labels: Sequence[str]) -> None:
        """Add labels, which must exist."""
        ...

    async def request_reviews(self, pull: PullRequest, logins: Sequence[str]) -> None:
        """Ask these accounts to review, besides those who were asked before."""
        ...

    async def access(self) -> ForgeAccess:
        """The account of the token, and its missing rights; an archived or unknown repository raises."""
        ...


# --- what all clients share -------------------------------------------------------------------------------

MAX_PAGES = 10
"""The most pages of one list, of 100 records each, that a snapshot holds."""

FULL_EVERY = 5
"""What a look at changes does not show, as a resolved thread, is seen at the fifth at the latest."""


class RemoteForge(ABC):
    """One repository of a forge.

    Args:
        repo: `owner/name`, with more parts on GitLab.
        token: of an account that may write to it.
        url: of the API; `None` for that of `profile`.
        transport: for the API.
        logs: for logs, which may lie on other hosts and be long.
        rate_limiters: shared with everything that uses the same token.
        now_ms: Unix time in milliseconds.
        sleep: waits before a request is repeated.
    """

    profile: ClassVar[ServiceProfile]
    webhooks: ClassVar[WebhookScheme]
    root: ClassVar[str] = "/repos"
    page: ClassVar[Query] = (("per_page", "100"),)
    draft_prefix: ClassVar[str] = ""
    """What the title of a draft begins with, where that makes it one."""

    def __init__(
        self,
        repo: str,
        token: str,
        *,
        url: str | None = None,
        transport: Transport | None = None,
        logs: Transport | None = None,
        rate_limiters: RateLimiters = SHARED,
        now_ms: Callable[[], int] = wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.service = replace(
            self.profile, credential_key="forge.token", scope_key="forge.repo", category=Category.FORGE
        )
        self.repo, self.base = repo, url or self.service.address
        self.path = f"{self.root}/{repo}"
        self._looks = 0
        self._malformed: dict[int, MalformedRecordError] = {}
        self._me: str | None = None
        self._headers = self.service.headers(token)
        self._logs = logs or transport or HttpxTransport(max_bytes=64 * 1024 * 1024)
        self._http = Http(
            base=self.base,
            service=self.service,
            credential=token,
            headers=self._headers,
            transport=transport,
            rate_limiters=rate_limiters,
            now_ms=now_ms,
            sleep=sleep,
        )

    # --- reads -------------------------------------------------------------------------------------------

    async def find(self, branch: str) -> Sequence[PullRequest]:
        """As `Forge.find`."""
        return await self.run(self.find_flow(branch))

    async def find_onto(self, branch: str) -> Sequence[int]:
        """As `Forge.find_onto`."""
        return await self.run(self.find_onto_flow(branch))

    async def observe(self, numbers: Sequence[int], *, fresh: bool = False) -> Mapping[int, PullRequest]:
        """As `Forge.observe`."""
        if not numbers:
            return {}
        self._looks += 1
        if fresh or self._looks >= FULL_EVERY:
            fresh, self._looks = True, 0
        self._malformed = {}
        found = await self.run(self.observe_flow(numbers, fresh=fresh), purpose=Purpose.POLL)
        if self._malformed:
            culprits = frozenset(map(str, self._malformed))
            raise self.service.malformed(str(next(iter(self._malformed.values()))), culprits=culprits)
        return found

    async def access(self) -> ForgeAccess:
        """As `Forge.access`."""
        return await self.run(self.access_flow())

    @abstractmethod
    def find_flow(self, branch: str) -> Flow[Sequence[PullRequest]]:
        """The requests of `find`."""

    @abstractmethod
    def find_onto_flow(self, branch: str) -> Flow[Sequence[int]]:
        """The requests of `find_onto`."""

    @abstractmethod
    def observe_flow(self, numbers: Sequence[int], *, fresh: bool) -> Flow[Mapping[int, PullRequest]]:
        """The requests of `observe`; of `fresh` ones nothing is left out that may be unchanged."""

    @abstractmethod
    def access_flow(self) -> Flow[ForgeAccess]:
        """The requests of `access`."""

    # --- for the clients ---------------------------------------------------------------------------------

    async def run(self, flow: Flow[T], *, purpose: Purpose = Purpose.TOOL) -> T:
        """Run a flow."""
        try:
            return await self._http.run(flow, purpose=purpose)
        except MalformedRecordError as error:
            raise self.service.malformed(str(error)) from error

    def read_as(self, kind: type[T], value: Any, request: Request) -> T:
        """The part of an answer as a typed value. Raises `MalformedRecordError` if it does not fit."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise MalformedRecordError(f"answered {request.endpoint} wrongly: {error}") from error

    def read_each(self, kind: type[T], value: Any, request: Request) -> tuple[list[T], bool]:
        """The records of a list that fit, and whether all do: a malformed one hides no other."""
        records, found = self.read_as(list[Any], value, request), list[T]()
        for record in records:
            with suppress(msgspec.ValidationError):
                found.append(msgspec.convert(record, kind))
        return found, len(found) == len(records)

    def sound(self, number: int, reading: Flow[T]) -> Flow[T | None]:
        """What is read of a pull request; `None` if it is malformed, which `observe` raises at the end."""
        try:
            return (yield from reading)
        except MalformedRecordError as error:
            self._malformed[number] = error
            return None

    def request(
        self,
        method: str,
        path: str,
        *variables: object,
        body: Any = None,
        accept: frozenset[int] = frozenset(),
    ) -> Request:
        """A request for what is at a path below the repository, with `{}` for variables."""
        return Request.below(self.path, path, *variables, method=method, body=body, accept=accept)

    def listed(
        self, kind: type[T], path: str, *variables: object, query: Query = (), newest: bool = False
    ) -> Flow[tuple[list[T], bool]]:
        """The records of a list whose pages are linked, and whether these are all.

        A malformed record is left out. Records beyond the limit are left out at the end or, if the `newest`
        must be there, after the first page.
        """
        first = replace(self.request("GET", path, *variables), query=[*query, *self.page], conditional=True)
        pages, complete = 0, True

        def read(answer: HttpResponse, pager: PageGuard) -> Page:
            nonlocal pages, complete
            pages += 1
            link = pager.link(answer)
            total = answer.headers.get("x-total-pages", "")
            too_many = int(total) - MAX_PAGES if newest and total.isdecimal() else 0
            more = None
            if link is not None and pages == 1 and too_many > 0:
                complete = False
                more = replace(first, query=[*first.query, ("page", str(too_many + 2))])
            elif link is not None and pages < MAX_PAGES:
                more = replace(first, path=link, query=())
            elif link is not None:
                complete = False
            records, all_fit = self.read_each(kind, answer.body, first)
            complete = complete and all_fit
            return records, more

        return (yield from all_pages(self.service, self.base, first, read)), complete

    def cannot(self, problem: str, *, hint: str) -> ServiceError:
        """What this forge cannot do; `problem` follows its name."""
        failure = Failure(
            category=Category.FORGE,
            blame=Blame.CONFIG,
            message=f"{self.service.name} {problem}",
            retryable=False,
            hint=hint,
        )
        return ServiceError(failure)

    def check_repository(self, name: Any, *, archived: Any) -> None:
        """Raise `ServiceError` if the repository has another name by now, or is archived."""
        if str(name).lower() != self.repo.lower():
            raise self.service.not_found(
                f"repository {self.repo}",
                hint=f"it was renamed: set forge.repo to {one_line(str(name), 200)}",
            )
        if archived is not False:
            raise self.service.not_found(f"repository {self.repo} that can be written to: it is archived")

    def login(self, key: str) -> Flow[str]:
        """The account of the token, which its record has under this key."""
        if self._me is None:
            request = Request(endpoint="/user", path="/user")
            self._me = self.read_as(str, dig((yield request).body, key), request).lower()
        return self._me

    def titled(self, title: str, *, draft: bool) -> str:
        """The title as the service has it."""
        return f"{self.draft_prefix}{title}" if draft else title

    def number_of_new(self, request: Request, key: str) -> Flow[int]:
        """Make something; the number that the answer has for it."""
        return self.read_as(int, dig((yield request).body, key), request)

    def _only(self, request: Request) -> Flow[HttpResponse]:
        return (yield request)

    async def send(self, request: Request) -> HttpResponse:
        """Send one request."""
        return await self.run(self._only(request))

    async def log_tail(self, check: Check) -> str | None:
        """As `Forge.log_tail`."""
        if check.log is None:
            return None
        return await read_tail(self._logs, self.base, f"{self.base}{check.log}", self._headers, self.service)


class RepositoryForge(RemoteForge):
    """One repository of a forge with the addresses of GitHub, which Forgejo and Gitea have too."""

    async def open(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> int:
        """As `Forge.open`."""
        content: dict[str, Any] = {
            "head": branch,
            "base": base,
            "title": self.titled(title, draft=draft),
            "body": body,
        }
        if not self.draft_prefix:
            content["draft"] = draft
        return await self.run(self.number_of_new(self.request("POST", "/pulls", body=content), "number"))

    async def update(self, pull: PullRequest, *, title: str, body: str) -> None:
        """As `Forge.update`."""
        content = {"title": self.titled(title, draft=pull.draft), "body": body}
        await self.send(self.request("PATCH", "/pulls/{}", pull.number, body=content))

    async def add_labels(self, pull: PullRequest, labels: Sequence[str]) -> None:
        """As `Forge.add_labels`; GitHub makes labels that do not exist."""
        await self.send(self.request("POST", "/issues/{}/labels", pull.number, body={"labels": list(labels)}))

    async def request_reviews(self, pull: PullRequest, logins: Sequence[str]) -> None:
        """As `Forge.request_reviews`."""
        body = {"reviewers": list(logins)}
        await self.send(self.request("POST", "/pulls/{}/requested_reviewers", pull.number, body=body))
