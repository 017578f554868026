"""The end of a check's log. It is text of others, may be huge, and mostly lies on another host."""

from collections.abc import Mapping
from urllib.parse import urljoin

from symphony.domain import Blame, Category, Failure, ServiceError, mask_credentials, plain_text
from symphony.http import ExchangeError, ServiceProfile, Transport, is_loopback
from symphony.http.exchange import origin_of

LINES = 100
MAX_BYTES = 256 * 1024
_MAX_LINE = 500
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OK = 200
_GONE = frozenset({404, 410})
_MAX_HOPS = 3


async def read_tail(
    transport: Transport, base: str, address: str, headers: Mapping[str, str], service: ServiceProfile
) -> str | None:
    """Download a log and return its last lines; `None` if it does not exist (any more).

    The credential goes to the host of `base` only. Not every host of logs can send only the end of one, so
    all of it is downloaded, within the limits of the transport.

    Raises:
        ServiceError: no answer, a refusal, or a log that is too long to be read.
    """
    for _ in range(_MAX_HOPS):
        same = origin_of(address) == origin_of(base)
        async with transport.session(base if same else address) as send:
            try:
                reply = await send("GET", address, headers if same else {}, None)
            except ExchangeError as error:
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
    """Whether a redirect may lead there: to another machine by https, or from this machine to anywhere."""
    try:
        scheme, _, _ = origin_of(target)
    except ValueError:
        return False
    return is_loopback(base) or (scheme == "https" and not is_loopback(target))


def last_lines(content: bytes) -> str:
    """The last lines as plain text, without escapes and credentials, each cut to a readable length."""
    text = mask_credentials(plain_text(content[-MAX_BYTES:].decode("utf-8", "replace")))
    return "\n".join(line.rstrip()[:_MAX_LINE] for line in text.splitlines()[-LINES:])


def _error(
    service: ServiceProfile, problem: str, *, retryable: bool = True, status: int | None = None
) -> ServiceError:
    return ServiceError(
        Failure(
            category=Category.FORGE,
            blame=Blame.TRACKER,
            message=f"{service.name} {problem}",
            retryable=retryable,
            status=status,
            hint=f"look at the log in {service.name}; may {service.credential_key} read logs of CI?",
        )
    )
