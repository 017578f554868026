"""The pages about skills: the list, a skill, its versions, the editor, assignments and proposals."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from anyio import to_thread
from msgspec import structs

from harness.asking import BEARER, LOOPBACK, SIGN_IN, asking
from harness.pages import DemoOperator, fill_library
from symphony.api import library
from symphony.api.access import Access
from symphony.api.pages.skills_views import skill_list
from symphony.library.model import Authorship, Origin, SkillText
from symphony.library.store import Library
from unit.api.test_pages import HOSTILE, VISIBLE, Seen, check

pytestmark = pytest.mark.asyncio
CSRF = {"csrf": SIGN_IN.csrf("control")}


@pytest.fixture
def operator(tmp_path: Path) -> DemoOperator:
    return DemoOperator(library_file=tmp_path / "library.db")


@pytest.fixture
def store(operator: DemoOperator) -> Library:
    assert operator.library_file is not None
    return Library(operator.library_file)


@pytest_asyncio.fixture
async def client(operator: DemoOperator, store: Library) -> AsyncIterator[httpx.AsyncClient]:
    await to_thread.run_sync(fill_library, store.path)
    async with asking(operator) as client:
        yield client


def rows(page: Seen) -> list[str]:
    return [str(link["href"]) for link in page.all("a") if "data-row" in link]


async def test_the_list_has_the_repository_and_the_library_by_search_and_scope(
    client: httpx.AsyncClient,
) -> None:
    page = check(await client.get("/skills"))
    for fact in (
        "shadowed by the repository",
        "2 proposals to decide",
        ".symphony/skills/api-style/SKILL.md",
    ):
        assert fact in page.text
    assert rows(page) == ["/skills/library/api-style", "/skills/library/retries"]
    for query, expected in (
        ("q=Another+SERVICE", ["/skills/library/retries"]),
        ("scope=shadowed", ["/skills/library/api-style"]),
        ("scope=repository", []),
        ("scope=learned", []),
        ("q=api&scope=library", ["/skills/library/api-style"]),
    ):
        assert rows(check(await client.get(f"/skills?{query}"))) == expected, query
    check(await client.get("/skills?scope=other"), 400)
    check(await client.get("/skills?page=0"), 400)


async def test_an_empty_or_broken_library_hides_no_repository_skill(operator: DemoOperator) -> None:
    async with asking(operator) as client:
        page = check(await client.get("/skills"))
        assert "/skills/new" in {link["href"] for link in page.all("a")}
        assert "has no skill yet" in page.text
        check(await client.get("/skills/library/none"), 404)
        assert operator.library_file is not None
        operator.library_file.write_bytes(b"no database" * 100)
        page = check(await client.get("/skills"))
        assert "damaged" in page.text
        assert "api-style" in page.text
        assert "has no skill yet" not in page.text
        check(await client.get("/skills/proposals"), 409)


async def test_ten_thousand_skills_are_pages(operator: DemoOperator, store: Library) -> None:
    head = await to_thread.run_sync(
        store.add,
        SkillText(name="one", description="d", when_to_use="", content="c"),
        Authorship(author="operator"),
    )
    heads = tuple(
        structs.replace(head, name=f"skill-{number}", origin=Origin.LEARNED if number % 2 else Origin.WRITTEN)
        for number in range(10_000)
    )
    overview = structs.replace(
        await to_thread.run_sync(library.overview, operator.library(), ""), heads=heads
    )
    skills = await operator.skills()
    first = skill_list(skills, overview, search="", scope="", page=1)
    last = skill_list(skills, overview, search="", scope="", page=201)
    assert (first.counts, first.total) == ((10_001, 1, 10_000, 0, 5_000), 10_001)
    assert [row.name for row in first.rows[:2]] == ["api-style", "skill-0"]
    assert [row.name for row in last.rows] == ["skill-9999"]
    assert len(first.rows) == 50


async def test_a_skill_shows_its_versions_and_the_difference_of_any_two(client: httpx.AsyncClient) -> None:
    page = check(await client.get("/skills/library/retries"))
    for fact in ("the log was full", "from the incident of May", "Log the last failure", "codex"):
        assert fact in page.text
    earlier = check(await client.get("/skills/library/retries?version=1"))
    assert "Log the last failure" not in earlier.text
    assert {"name": "version", "type": "hidden", "value": "1"} in earlier.all("input")
    diff = check(await client.get("/skills/library/retries/diff?old=2&new=1"))
    assert "-Log the last failure, not each one." in diff.text.splitlines()
    check(await client.get("/skills/library/retries/diff?old=9&new=1"), 404)


async def test_figures_are_of_the_skills_that_are_shown(client: httpx.AsyncClient) -> None:
    for path, shown in (
        ("/skills", True),
        ("/skills?q=api", True),
        ("/skills/library/api-style", True),
        ("/skills?q=retries", False),
        ("/skills/library/retries", False),
    ):
        page = check(await client.get(path))
        assert ("4.5 (2)" in page.text) is shown, path


async def test_text_in_a_skill_is_text(client: httpx.AsyncClient, store: Library) -> None:
    hostile = SkillText(
        name="hostile",
        description=HOSTILE.replace("\x1b", ""),
        when_to_use="",
        content=f"# {HOSTILE}\n\n[click](javascript:alert(1)) ![see](https://evil.example/x.png)\n\n{HOSTILE}\n",
    )
    await to_thread.run_sync(store.add, hostile, Authorship(author=HOSTILE, reason=HOSTILE))
    for path in ("/skills?q=hostile", "/skills/library/hostile", "/skills/library/hostile/edit"):
        response = await client.get(path)
        page = check(response)
        assert not page.all("img"), path
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e]", response.text), path
    page = check(await client.get("/skills/library/hostile"))
    assert page.text.count(VISIBLE) >= 3
    assert "[click](javascript:alert(1))" in page.text


async def test_a_stale_edit_shows_both_and_loses_no_text(client: httpx.AsyncClient, store: Library) -> None:
    mine = "---\nname: retries\ndescription: Mine.\n---\nMy text.\n"
    form = {
        **CSRF,
        "name": "retries",
        "base_version": "1",
        "reason": "better",
        "file": mine.replace("\n", "\r\n"),
    }
    response = await client.post("/actions/library/save", data=form)
    page = check(response)
    for fact in ("My text.", "+My text.", "-Log the last failure, not each one.", "Save over version 2"):
        assert fact in page.text
    fields = {str(field.get("name")): field.get("value") for field in page.all("input")}
    assert (fields["base_version"], fields["reason"]) == ("2", "better")
    saved = await client.post("/actions/library/save", data=form | {"base_version": "2"})
    assert saved.headers["location"].startswith("/skills/library/retries?notice=")
    skill = await to_thread.run_sync(store.skill, "retries")
    assert (skill.version, skill.text.file().decode()) == (3, mine)


async def test_what_cannot_be_saved_stays_in_the_editor_with_the_reason(
    client: httpx.AsyncClient, store: Library
) -> None:
    for name, file, fact in (
        ("", "no front matter, but long thought", "missing front matter"),
        ("retries", "---\nname: other\ndescription: d\n---\nlong thought\n", "another name is another skill"),
        ("", "---\nname: retries\ndescription: d\n---\nlong thought\n", "the library has a skill retries"),
    ):
        form = {**CSRF, "name": name, "base_version": "2" if name else "0", "file": file}
        page = check(await client.post("/actions/library/save", data=form))
        assert "long thought" in page.text
        assert fact in page.text
    checked = check(await client.post("/actions/library/check", data={**CSRF, "file": "nothing"}))
    assert any(each.get("id") == "preview" for each in checked.all("div"))
    assert [each.name for each in await to_thread.run_sync(store.skills)] == ["api-style", "retries"]


async def test_forms_assign_decide_revert_and_remove(client: httpx.AsyncClient, store: Library) -> None:
    async def order(verb: str, **fields: str | list[str]) -> None:
        answer = await client.post(f"/actions/library/{verb}", data={**CSRF, "next": "/skills", **fields})
        assert answer.status_code == 303
        assert "is-done" in (await client.get(answer.headers["location"])).text, (verb, fields)

    await order("assign", kind="issue", target="WEB-1", skills=["retries", "api-style"])
    page = check(await client.get("/skills/assignments?kind=issue&target=WEB-1&q=nothing&skills=retries"))
    ticked = [field.get("value") for field in page.all("input") if "checked" in field]
    assert ticked == ["retries"], "what is ticked stays, whatever is searched for"
    await order("assign", kind="agent", target="codex", drop="1")
    found = await to_thread.run_sync(store.assignments)
    assert [(each.target, each.names) for each in found] == [("WEB-1", ("api-style", "retries"))]

    page = check(await client.get("/skills/proposals/1"))
    links = {link["href"] for link in page.all("a")}
    assert "/issues/WEB-131?run=run-131-2&after=6" in links
    learned = check(await client.get("/skills/proposals/2"))
    assert "Read it carefully: the check found: new address" in learned.text
    await order("accept", id="1")
    await order("reject", id="2", reason="too vague")
    assert "too vague" in check(await client.get("/skills/proposals/2")).text
    await order("revert", name="retries", version="1")
    assert (await to_thread.run_sync(store.skill, "retries")).version == 4
    await order("remove", name="retries")
    check(await client.get("/skills/library/retries"), 404)

    refused = await client.post("/actions/library/accept", data={**CSRF, "id": "1"})
    assert "is-error" in (await client.get(refused.headers["location"])).text
    assert (await client.post("/actions/library/accept", data={"id": "1"})).status_code == 403


async def test_a_reader_without_a_sign_in_changes_nothing(operator: DemoOperator) -> None:
    public = Access.tcp("127.0.0.1", str(LOOPBACK.token), LOOPBACK.sign_in, public_reads=True)
    async with asking(operator, public) as client:
        check(await client.get("/skills"))
        for verb in ("save", "check", "remove", "revert", "assign", "accept", "reject"):
            answer = await client.post(f"/actions/library/{verb}", data={"id": "1"})
            assert answer.status_code == 401, verb
    async with asking(operator, LOOPBACK, headers=BEARER) as client:
        check(await client.get("/skills/new"))
