from hashlib import sha256

import anyio.lowlevel
import pytest

from symphony.domain import Category, ServiceError
from symphony.http import (
    PAUSE,
    Flow,
    HttpResponse,
    PageGuard,
    Request,
    ServiceProfile,
    next_link,
    paging,
    plain_message,
    plain_status,
    run_flow,
)
from symphony.http.client import ResponseCache
from symphony.http.exchange import origin_of

SERVICE = ServiceProfile(name="Service", credential_key="s", scope_key="p")
BASE = "https://api.example.test/v3"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ('<https://x/?page=2>; rel="next", <https://x/?page=9>; rel="last"', "https://x/?page=2"),
        ('<https://x/1>; rel="prev",<https://x/3>;rel=next', "https://x/3"),
        ('<https://x/?a=1,2>; rel="next"', "https://x/?a=1,2"),
        ('<https://x/2>; title="a"; rel="last next"', "https://x/2"),
        ('<https://x/2>; rel="nextish"', None),
        ('<https://x/2>; rel="last"', None),
        ("", None),
        ("nonsense", None),
    ],
)
def test_the_next_page_is_found_in_the_link_header(link: str, expected: str | None) -> None:
    assert next_link({"link": link}) == expected


def pager() -> PageGuard:
    return PageGuard(SERVICE, Request(endpoint="/x", path="/x"), BASE)


def linking(address: str) -> HttpResponse:
    return HttpResponse(status=200, address=BASE, headers={"link": f'<{address}>; rel="next"'})


@pytest.mark.parametrize(
    "address",
    [
        "https://elsewhere.example.test/x",
        "http://api.example.test/x",
        "https://api.example.test:8443/x",
        "https://user:pass@api.example.test/x",
        "//api.example.test/x",
        "/x?page=2",
        "https://api.example.test/v3/x",
    ],
)
def test_a_next_page_that_is_elsewhere_or_was_seen_is_refused(address: str) -> None:
    way = pager()
    with pytest.raises(ServiceError) as caught:
        way.link(linking(address))
    assert caught.value.failure.category is Category.TRACKER_PAGINATION


def test_ways_without_end_are_refused() -> None:
    way = pager()
    for number in range(paging.MAX_PAGES - 1):
        way.cursor(f"c{number}")
    with pytest.raises(ServiceError):
        way.cursor("one more")
    with pytest.raises(ServiceError):
        pager().count(paging.MAX_RECORDS + 1)
    odd: object
    for odd in (None, "", True, {}, 1.5):
        with pytest.raises(ServiceError):
            pager().cursor(odd)
    assert pager().cursor(7) == "7"


@pytest.mark.parametrize(
    "address", ["ftp://x", "x", "https://", "https://u@x", "https://u:p@x", "https://x:99999"]
)
def test_what_is_no_web_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        origin_of(address)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"message": "Bad credentials"}, "Bad credentials"),
        ({"message": {"title": ["is too long"]}}, "title: is too long"),
        ({"error": "invalid_token", "error_description": "expired"}, "invalid_token; expired"),
        ({"errors": [{"message": "one", "help": "x"}, {"message": "two"}]}, "one; two"),
        ({"errors": ["Subject cannot be blank"]}, "Subject cannot be blank"),
        ({"errorMessages": ["a"], "errors": {"field": "b"}}, "a; field: b"),
        ([], ""),
        (None, ""),
        ("text", "text"),
        ({"message": "x" * 5_000}, "x" * 999 + "…"),
        ({"message": [[[[["deep"]]]]]}, "deep"),
    ],
)
def test_an_error_is_read_whatever_its_shape(body: object, expected: str) -> None:
    assert plain_message(body) == expected


def test_a_403_is_a_limit_only_if_it_says_so() -> None:
    def status(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return plain_status(HttpResponse(status=403, address="x", headers=named))

    assert status() == 403
    assert status(x_ratelimit_remaining="12") == 403
    assert status(x_ratelimit_remaining="0") == 429
    assert status(retry_after="5") == 429


def test_known_answers_are_bounded() -> None:
    known = ResponseCache(max_entries=2, max_bytes=1_000)

    def keep(name: str, *, content: bytes | None = None, **headers: str) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        known.keep(
            HttpResponse(status=200, address=name, headers=named, body=name),
            content or b'"%s"' % name.encode(),
        )

    keep("a", etag="1")
    keep("b", last_modified="then")
    keep("none")
    assert known.validators("a") == {"if-none-match": "1"}
    assert known.validators("b") == {"if-modified-since": "then"}
    assert known.validators("none") == {}
    confirmed = known.confirmed("a", {"x-left": "5"})
    assert confirmed is not None
    assert (confirmed.body, confirmed.cached, confirmed.headers["x-left"]) == ("a", True, "5")
    keep("c", etag="1")
    assert known.confirmed("b", {}) is None, "the one that was asked for longest ago"
    keep("large", etag="1", content=b'"' + bytes(range(97, 123)) * 1_000 + b'"')
    assert known.confirmed("large", {}) is not None, "what repeats itself takes little room"
    noise = "".join(sha256(str(number).encode()).hexdigest() for number in range(60))
    keep("noise", etag="1", content=f'"{noise}"'.encode())
    assert known.validators("noise") == known.validators("large") == {}
    assert known.confirmed("gone", {}) is None


@pytest.mark.asyncio
async def test_flows_run_without_a_network_and_may_take_a_failure_for_an_answer() -> None:
    def flow() -> Flow[str]:
        answer = yield Request(endpoint="/a", path="/a", query=[("q", "1 2")])
        try:
            yield Request(endpoint="/b", path=f"/b/{answer.body}?x=1", query=[("y", "2")])
        except ServiceError as error:
            return error.failure.message
        return "no failure"

    asked: list[str] = []

    async def reply(request: Request) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        asked.append(request.address(BASE))
        if request.endpoint == "/b":
            raise SERVICE.bad_pagination(request, "odd")
        return HttpResponse(status=200, address=BASE, body=7)

    assert await run_flow(flow(), reply) == "Service, pages of /b: odd"
    assert asked == [f"{BASE}/a?q=1+2", f"{BASE}/b/7?x=1&y=2"]


@pytest.mark.asyncio
async def test_a_pause_of_a_flow_lets_others_work_and_asks_nothing() -> None:
    done: list[str] = []

    def flow() -> Flow[str]:
        for part in ("one", "two"):
            done.append(part)
            yield PAUSE
        answer = yield Request(endpoint="/a", path="/a")
        return str(answer.body)

    async def other() -> None:
        for _ in range(2):
            done.append("other")
            await anyio.lowlevel.checkpoint()

    async def reply(request: Request) -> HttpResponse:
        await anyio.lowlevel.checkpoint()
        return HttpResponse(status=200, address=BASE, body=request.endpoint)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert await run_flow(flow(), reply) == "/a"
    assert done == ["one", "other", "two", "other"]
