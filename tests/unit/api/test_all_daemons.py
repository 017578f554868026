"""The page over every daemon of a person: what it shows, and what it lets in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx
import pytest
from msgspec import structs
from typing_extensions import override

from harness.asking import client_of, signed_in
from harness.pages import demo_state
from harness.scheduling import make_failure
from symphony.api.access import Access
from symphony.api.all_daemons import DaemonFacts, DaemonsInUse, all_daemons_view, create_all_daemons_app
from symphony.api.live import Changes
from symphony.api.models import Link
from symphony.api.sign_in import BrowserSignIn
from symphony.domain import SymphonyError

HOSTILE = "<script>alert(1)</script>\u202e"


@dataclass
class FakeDaemons(DaemonsInUse):
    """Daemons as a test likes."""

    listed: Sequence[DaemonFacts]
    fails: SymphonyError | None = None
    opened: list[str] = field(default_factory=list)

    @override
    async def facts(self) -> Sequence[DaemonFacts]:
        return self.listed

    @override
    async def link(self, key: str) -> Link:
        if self.fails is not None:
            raise self.fails
        self.opened.append(key)
        at = "2026-03-04T09:43:00Z"
        return Link(
            url="http://own.localhost:9/sign-in?link=x", address="http://own.localhost:9", expires_at=at
        )


def facts(name: str, **changes: object) -> DaemonFacts:
    made = {"key": f"key-{name}", "name": name, "place": f"/srv/{name}/WORKFLOW.md", "state": demo_state()}
    return DaemonFacts(**{**made, **changes})  # type: ignore[arg-type]  # facts by name


def browser(daemons: FakeDaemons) -> tuple[httpx.AsyncClient, Access]:
    sign_in = BrowserSignIn()
    access = Access.tcp("127.0.0.1", "nobody knows it", sign_in)
    app = create_all_daemons_app(daemons, access, Changes())
    host = f"{sign_in.host}:8787{sign_in.root}"
    return client_of(app, host=host, headers=signed_in(sign_in)), access


def test_the_neediest_repository_stands_first_and_the_silent_one_is_listed() -> None:
    state = demo_state()
    calm = structs.replace(
        state, blocked=(), ready=(), counts=structs.replace(state.counts, blocked=0, ready=0)
    )
    few = structs.replace(state, ready=(), counts=structs.replace(state.counts, ready=0))
    silent = facts("app", state=None, message="it did not answer within 2 s")
    view = all_daemons_view([facts("web"), facts("few", state=few), facts("calm", state=calm), silent])
    assert [one.name for one in view.daemons] == ["app", "calm", "few", "web"]
    assert [(one.name, one.needing) for one in view.repositories] == [("web", 3), ("few", 2)]
    assert view.needing == 5
    assert [need.icon for need in view.repositories[0].needs] == ["blocked", "ready", "question"]
    assert (view.daemons[0].slots, view.daemons[0].health) == (None, "Does not answer")


def test_time_alone_changes_nothing() -> None:
    later = structs.replace(demo_state(), generated_at="2030-01-01T00:00:00Z")
    assert all_daemons_view([facts("web")]) == all_daemons_view([facts("web", state=later)])


@pytest.mark.asyncio
async def test_a_browser_reads_and_is_led_to_a_daemon_by_a_link_made_on_demand() -> None:
    state = demo_state()
    hostile = structs.replace(state.blocked[0], title=HOSTILE, question=HOSTILE)
    daemons = FakeDaemons([facts(HOSTILE, state=structs.replace(state, blocked=(hostile,)))])
    client, access = browser(daemons)
    async with client:
        page = await client.get("/")
        assert (page.status_code, "<script>alert" in page.text, "\u202e" in page.text) == (200, False, False)
        assert "(3) All daemons" in page.text
        assert "form-action 'self'" in page.headers["content-security-policy"]
        assert daemons.opened == [], "reading opens nothing"
        csrf = re.findall(r'name="csrf" value="([^"]+)"', page.text)[0]
        target = {"csrf": csrf, "daemon": "key-web", "path": "/issues/WEB-1"}
        led = await client.post("/actions/open-daemon", data=target)
        url = "http://own.localhost:9/sign-in?link=x&next=%2Fissues%2FWEB-1"
        assert (led.status_code, led.headers["refresh"]) == (200, f"0; url={url}")
        elsewhere = await client.post("/actions/open-daemon", data=target | {"path": "https://evil.example"})
        assert elsewhere.headers["refresh"].endswith("&next=%2F")
        assert (await client.post("/actions/open-daemon", data=target | {"csrf": "x"})).status_code == 403

        daemons.fails = SymphonyError(make_failure("it is gone", hint="start it"))
        told = await client.post("/actions/open-daemon", data=target)
        assert (
            "it is gone"
            in (await client.get(told.headers["location"].removeprefix(access.sign_in.root))).text
        )


@pytest.mark.asyncio
async def test_nobody_else_is_let_in_and_nothing_of_a_daemon_is_there() -> None:
    client, _ = browser(FakeDaemons([facts("web")]))
    async with client:
        for path in ("/api/v1/state", "/history", "/issues/WEB-131", "/metrics"):
            assert (await client.get(path)).status_code == 404
        assert (await client.post("/actions/stop", data={"issue": "WEB-131"})).status_code in {403, 404}
        client.headers.pop("cookie")
        for path in ("/", "/api/v1/events"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post("/actions/open-daemon", data={"daemon": "key-web"})).status_code == 401
        client.headers["host"] = "evil.example"
        assert (await client.get("/")).status_code == 403
