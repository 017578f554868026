"""Pull requests of a service: the interface (`Forge`), and what the clients of all services share."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar
from urllib.parse import urljoin

import anyio
import msgspec
from msgspec import Struct

from symphony import domain, http
from symphony.http.exchange import origin_of
from symphony.http.fields import MalformedRecordError, dig
from symphony.trackers.webhooks import WebhookScheme

T = TypeVar("T")

# --- what the daemon asks --------------------------------------------------------------------------------


class Landing(StrEnum):
    """How to merge a change, and what `Forge.arm` did."""

    AUTO = "auto"
    QUEUE = "queue"
    MERGED = "merged"


class ForgeAccess(Struct, frozen=True, kw_only=True):
    """What a token may do.

    Attributes:
        login: the account of the token.
        missing: what it lacks to open, answer and land, in words; empty if nothing is known to be missing.
        limits: what no token can do on this forge, in words.
    """

    login: str
    missing: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


class Forge(Protocol):
    """One repository. Every method raises `ServiceError`; a read is repeated, a write never is."""

    async def find(self, branch: str) -> Sequence[domain.PullRequest]:
        """All pull requests, open or not, newest first, whose head is this branch of this repository.

        They have no checks, reviews and comments (`complete` is false). Not every forge reports here whether
        their authors may write.
        """
        ...

    async def find_onto(self, branch: str) -> Sequence[int]:
        """The numbers of open pull requests whose base is this branch; at least one if there are any."""
        ...

    async def open(self, *, branch: str, base: str, title: str, body: str, draft: bool) -> int:
        """Open a pull request and return its number. Look for an existing one with `find` first."""
        ...

    async def update(self, pull: domain.PullRequest, *, title: str, body: str) -> None:
        """Change title and text."""
        ...

    async def observe(
        self, numbers: Sequence[int], *, fresh: bool = False
    ) -> Mapping[int, domain.PullRequest]:
        """Snapshots by number, without those that do not exist.

        The forge does not send unchanged parts again, unless a snapshot must be `fresh`, as for a merge. A
        malformed part makes its pull request incomplete. If whole pull requests are malformed, the error has
        their numbers as `culprits`; a call without them returns the others.
        """
        ...

    async def log_tail(self, check: domain.Check) -> str | None:
        """The last 100 lines of a check's log, as plain text without credentials; `None` if it has none."""
        ...

    async def reply(self, pull: domain.PullRequest, thread_id: str, body: str) -> None:
        """Answer in a thread."""
        ...

    async def resolve(self, pull: domain.PullRequest, thread_id: str) -> bool:
        """Mark a thread as resolved; false on a forge where only people can do that."""
        ...

    async def arm(self, pull: domain.PullRequest, landing: Landing) -> Landing:
        """Let the forge merge it when its rules allow, or at once if they allow it already.

        The forge refuses if the head is no longer `pull.head_sha`.
        """
        ...

    async def disarm(self, pull: domain.PullRequest) -> None:
        """Take back `arm`."""
        ...

    async def add_labels(self, pull: domain.PullRequest, labels: Sequence[str]) -> None:
        """Add labels, which must exist."""
        ...

    async def request_reviews(self, pull: domain.PullRequest, logins: Sequence[str]) -> None:
        """Ask these accounts to review, in addition to earlier requests."""
        ...

    async def access(self) -> ForgeAccess:
        """The account of the token, and its missing rights; raises for an archived or unknown repository."""
        ...


# --- what all clients share -------------------------------------------------------------------------------

MAX_PAGES = 10
"""How many pages of one list, of 100 records each, a snapshot has at most."""

FULL_EVERY = 5
"""Every fifth snapshot is a full one, to find what is not reported as a change, such as a resolved thread."""


class RemoteForge(ABC):
    """One repository of a forge.

    Args:
        repo: `owner/name`, with more parts on GitLab.
        token: the token of an account that may write to it.
        url: the address of the API; `None` for that of `profile`.
        transport: the transport of the API.
        logs: the transport of logs, which may be long and on other hosts.
        rate_limiters: shared with everything that uses the same token.
        now_ms: Unix time in milliseconds.
        sleep: waits before a request is repeated.
    """

    profile: ClassVar[http.ServiceProfile]
    webhooks: ClassVar[WebhookScheme]
    root: ClassVar[str] = "/repos"
    page: ClassVar[http.Query] = (("per_page", "100"),)
    draft_prefix: ClassVar[str] = ""
    """The beginning of the title of a draft, if the title makes it a draft."""

    def __init__(
        self,
        repo: str,
        token: str,
        *,
        url: str | None = None,
        transport: http.Transport | None = None,
        logs: http.Transport | None = None,
        rate_limiters: http.RateLimiters = http.SHARED,
        now_ms: Callable[[], int] = http.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.service = replace(
            self.profile, credential_key="forge.token", scope_key="forge.repo", category=domain.Category.FORGE
        )
        self.repo, self.base = repo, url or self.service.address
        self.path = f"{self.root}/{repo}"
        self._looks = 0
        self._malformed: dict[int, MalformedRecordError] = {}
        self._me: str | None = None
        self._headers = self.service.headers(token)
        self._logs = logs or transport or http.HttpxTransport(max_bytes=64 * 1024 * 1024)
        self._http = http.Http(
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

    async def find(self, branch: str) -> Sequence[domain.PullRequest]:
        """As `Forge.find`."""
        return await self.run(self.find_flow(branch))

    async def find_onto(self, branch: str) -> Sequence[int]:
        """As `Forge.find_onto`."""
        return await self.run(self.find_onto_flow(branch))

    async def observe(
        self, numbers: Sequence[int], *, fresh: bool = False
    ) -> Mapping[int, domain.PullRequest]:
        """As `Forge.observe`."""
        if not numbers:
            return {}
        self._looks += 1
        if fresh or self._looks >= FULL_EVERY:
            fresh, self._looks = True, 0
        self._malformed = {}
        found = await self.run(self.observe_flow(numbers, fresh=fresh), purpose=http.Purpose.POLL)
        if self._malformed:
            culprits = frozenset(map(str, self._malformed))
            raise self.service.malformed(str(next(iter(self._malformed.values()))), culprits=culprits)
        return found

    async def access(self) -> ForgeAccess:
        """As `Forge.access`."""
        return await self.run(self.access_flow())

    @abstractmethod
    def find_flow(self, branch: str) -> http.Flow[Sequence[domain.PullRequest]]:
        """The requests of `find`."""

    @abstractmethod
    def find_onto_flow(self, branch: str) -> http.Flow[Sequence[int]]:
        """The requests of `find_onto`."""

    @abstractmethod
    def observe_flow(
        self, numbers: Sequence[int], *, fresh: bool
    ) -> http.Flow[Mapping[int, domain.PullRequest]]:
        """The requests of `observe`; with `fresh`, unchanged parts are requested too."""

    @abstractmethod
    def access_flow(self) -> http.Flow[ForgeAccess]:
        """The requests of `access`."""

    # --- for the clients ---------------------------------------------------------------------------------

    async def run(self, flow: http.Flow[T], *, purpose: http.Purpose = http.Purpose.TOOL) -> T:
        """Run a flow."""
        try:
            return await self._http.run(flow, purpose=purpose)
        except MalformedRecordError as error:
            raise self.service.malformed(str(error)) from error

    def read_as(self, kind: type[T], value: Any, request: http.Request) -> T:
        """A part of an answer as a typed value. Raises `MalformedRecordError` if it does not fit."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise MalformedRecordError(f"answered {request.endpoint} wrongly: {error}") from error

    def read_each(self, kind: type[T], value: Any, request: http.Request) -> tuple[list[T], bool]:
        """The valid records of a list, and whether all are valid: a malformed one hides no other."""
        records, found = self.read_as(list[Any], value, request), list[T]()
        for record in records:
            with suppress(msgspec.ValidationError):
                found.append(msgspec.convert(record, kind))
        return found, len(found) == len(records)

    def sound(self, number: int, reading: http.Flow[T]) -> http.Flow[T | None]:
        """The read pull request; `None` if it is malformed, which `observe` raises at the end."""
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
    ) -> http.Request:
        """A request for a path below the repository, with `{}` for variables."""
        return http.Request.below(self.path, path, *variables, method=method, body=body, accept=accept)

    def listed(
        self, kind: type[T], path: str, *variables: object, query: http.Query = (), newest: bool = False
    ) -> http.Flow[tuple[list[T], bool]]:
        """The records of a list whose pages are linked, and whether the list is complete.

        A malformed record is left out. Records beyond the limit are left out at the end or, if the `newest`
        must be there, after the first page.
        """
        first = replace(self.request("GET", path, *variables), query=[*query, *self.page], conditional=True)
        pages, complete = 0, True

        def read(answer: http.HttpResponse, pager: http.PageGuard) -> http.Page:
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

        return (yield from http.all_pages(self.service, self.base, first, read)), complete

    def cannot(self, problem: str, *, hint: str) -> domain.ServiceError:
        """The error for something that this forge cannot do; `problem` follows its name."""
        failure = domain.Failure(
            category=domain.Category.FORGE,
            blame=domain.Blame.CONFIG,
            message=f"{self.service.name} {problem}",
            retryable=False,
            hint=hint,
        )
        return domain.ServiceError(failure)

    def check_repository(self, name: Any, *, archived: Any) -> None:
        """Raise `ServiceError` if the repository was renamed or archived."""
        if str(name).lower() != self.repo.lower():
            raise self.service.not_found(
                f"repository {self.repo}",
                hint=f"it was renamed: set forge.repo to {domain.one_line(str(name), 200)}",
            )
        if archived is not False:
            raise self.service.not_found(f"repository {self.repo} that can be written to: it is archived")

    def login(self, key: str) -> http.Flow[str]:
        """The account of the token, from this key of its record."""
        if self._me is None:
            request = http.Request(endpoint="/user", path="/user")
            self._me = self.read_as(str, dig((yield request).body, key), request).lower()
        return self._me

    def titled(self, title: str, *, draft: bool) -> str:
        """The title in the form of the service."""
        return f"{self.draft_prefix}{title}" if draft else title

    def number_of_new(self, request: http.Request, key: str) -> http.Flow[int]:
        """Create something and return its number in the answer."""
        return self.read_as(int, dig((yield request).body, key), request)

    def _only(self, request: http.Request) -> http.Flow[http.HttpResponse]:
        return (yield request)

    async def send(self, request: http.Request) -> http.HttpResponse:
        """Send one request."""
        return await self.run(self._only(request))

    async def log_tail(self, check: domain.Check) -> str | None:
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

    async def update(self, pull: domain.PullRequest, *, title: str, body: str) -> None:
        """As `Forge.update`."""
        content = {"title": self.titled(title, draft=pull.draft), "body": body}
        await self.send(self.request("PATCH", "/pulls/{}", pull.number, body=content))

    async def add_labels(self, pull: domain.PullRequest, labels: Sequence[str]) -> None:
        """As `Forge.add_labels`; GitHub makes labels that do not exist."""
        await self.send(self.request("POST", "/issues/{}/labels", pull.number, body={"labels": list(labels)}))

    async def request_reviews(self, pull: domain.PullRequest, logins: Sequence[str]) -> None:
        """As `Forge.request_reviews`."""
        body = {"reviewers": list(logins)}
        await self.send(self.request("POST", "/pulls/{}/requested_reviewers", pull.number, body=body))


# --- the end of a check's log ----------------------------------------------------------------------------
# A log is text of others, may be huge, and is usually on another host.

LINES = 100
MAX_BYTES = 256 * 1024
_MAX_LINE = 500
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200
_GONE = frozenset({404, 410})
_MAX_HOPS = 3


async def read_tail(
    transport: http.Transport,
    base: str,
    address: str,
    headers: Mapping[str, str],
    service: http.ServiceProfile,
) -> str | None:
    """Download a log and return its last lines; `None` if it does not exist (any more).

    Only the host of `base` gets the credential. Not every host can send only the end of a log, so all of it
    is downloaded, within the limits of the transport.

    Raises:
        ServiceError: no answer, a refusal, or a log that is too long to be read.
    """
    for _ in range(_MAX_HOPS):
        same = origin_of(address) == origin_of(base)
        async with transport.session(base if same else address) as send:
            try:
                reply = await send("GET", address, headers if same else {}, None)
            except http.ExchangeError as error:
                raise _error(service, f"did not send the log: {error}") from error
        if reply.status in _GONE:
            return None
        if reply.status == _OK:
            if reply.content is None:
                raise _error(service, "has a log of more than 64 MiB", retryable=False)
            return last_lines(reply.content)
        target = urljoin(address, reply.headers.get("location", ""))
        if reply.status not in _REDIRECTS or not _may_follow(target, base):
            raise _error(service, f"answered {reply.status} to the log", status=reply.status)
        address = target
    raise _error(service, "redirects the log again and again")


def _may_follow(target: str, base: str) -> bool:
    """Whether to follow a redirect: to another machine by https, or from this machine to anywhere."""
    try:
        scheme, _, _ = origin_of(target)
    except ValueError:
        return False
    return http.is_loopback(base) or (scheme == "https" and not http.is_loopback(target))


def last_lines(content: bytes) -> str:
    """The last lines as plain text, without escapes and credentials, each cut to a readable length."""
    text = domain.mask_credentials(domain.plain_text(content[-MAX_BYTES:].decode("utf-8", "replace")))
    return "\n".join(line.rstrip()[:_MAX_LINE] for line in text.splitlines()[-LINES:])


def _error(
    service: http.ServiceProfile, problem: str, *, retryable: bool = True, status: int | None = None
) -> domain.ServiceError:
    return domain.ServiceError(
        domain.Failure(
            category=domain.Category.FORGE,
            blame=domain.Blame.TRACKER,
            message=f"{service.name} {problem}",
            retryable=retryable,
            status=status,
            hint=f"look at the log in {service.name}; may {service.credential_key} read logs of CI?",
        )
    )
