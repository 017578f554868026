"""A change with every byte in file names and control characters in lines: read and reviewed on its page."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
import pytest
from anyio import to_thread

from harness.project import DEADLINE_S, Project
from harness.serving import Served, serving
from symphony.scheduler import ResultStatus

pytestmark = pytest.mark.asyncio
EVERY_BYTE = bytes(byte for byte in range(1, 256) if byte != ord("/"))
NAMES = (
    *(EVERY_BYTE[:128] + b".py", EVERY_BYTE[128:] + b".py"),
    *(b"\xe2\x80\xae txt.exe", b"-flag", b"a\nb", b":(glob)*", b"100%41.txt"),
)
LINE = "x = 1  # \x1b[31mred\x1b[0m \u202eright to left\u2066 \x07"
MAKE = f"""\
for number, name in enumerate({NAMES!r}):
    with open(name, "w", encoding="utf-8") as file:
        file.write(f"first {{number}}\\n" + {LINE!r} + "\\n")
"""
WORK: list[dict[str, Any]] = [
    {"write": "make.py", "text": MAKE},
    {"run": "python3 make.py && rm make.py"},
    {"commit": "Work \x1b[31m\u202e"},
    {"tool": "board_move", "arguments": {"state": "Human Review"}},
]
PATH = "/issues/SYM-1/diff"
FORM = re.compile(r"<form.*?</form>", re.DOTALL)
FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def is_ready(served: Served) -> bool:
    results = served.watcher.states[-1].results.values() if served.watcher.states else ()
    return any(result.status is ResultStatus.READY for result in results)


async def test_every_file_is_shown_marked_and_commented_on(project: Project) -> None:
    def prepare() -> None:
        project.workflow(agent={"skills": {"enabled": False}})
        project.issue("SYM-1", WORK)

    @asynccontextmanager
    async def reviewing() -> AsyncIterator[httpx.AsyncClient]:
        """A browser, once the work is ready."""
        async with serving(project) as served:
            await served.watcher.until(lambda: is_ready(served))
            transport = httpx.AsyncHTTPTransport(uds=project.control_socket, verify=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://symphony", timeout=DEADLINE_S
            ) as client:
                yield client

    await to_thread.run_sync(prepare)
    async with reviewing() as browser:

        async def form_with(field: str, address: str) -> dict[str, str]:
            """The hidden fields of the form that has this one."""
            page = (await browser.get(address)).text
            form = next(found for found in FORM.findall(page) if field in found)
            return {name: unescape(value) for name, value in FIELD.findall(form)}

        async def post(fields: dict[str, str]) -> str:
            """The page that follows."""
            # A browser sends each line break as two characters.
            fields = {name: value.replace("\n", "\r\n") for name, value in fields.items()}
            sent = await browser.post("/actions/review-draft", data=fields)
            assert sent.status_code == 303
            return (await browser.get(sent.headers["location"])).text

        page = (await browser.get(PATH)).text
        assert not [one for one in page if not one.isprintable() and one != "\n"]
        assert page.count("\\x1b[31mred\\x1b[0m \\u202eright to left\\u2066 \\x07") == len(NAMES)
        document = (await browser.get("/api/v1/SYM-1/review?reviewer=lea-at-home")).json()
        paths = [file["path"] for file in document["files"]]
        assert len(set(paths)) == len(NAMES)
        for number in range(len(NAMES)):
            mark = await form_with('name="viewed"', f"{PATH}?file={number}")
            await post({**mark, "viewed": "1"})
            line = await form_with('name="line"', f"{PATH}?file={number}&at=n2")
            assert line["path"] == paths[number]
            told = await post({**line, "text": f"About {number}"})
            assert f"About {number}</p>" in told, told
        review = (await browser.get(PATH)).text
    assert review.count('aria-pressed="true">Viewed') == len(NAMES)
    assert review.count("not sent yet") == len(NAMES), "all files are folded"
