"""No agent sets or removes a label that decides, in any spelling of a request; it sets any other label."""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from attack.conftest import Rounds
from contract.asana import gid_of
from contract.desks import DESKS
from contract.forgejo import OWNER as FORGEJO_OWNER
from contract.forgejo import REPO as FORGEJO_REPO
from contract.github import OWNER, REPO
from contract.gitlab import PROJECT as GITLAB_PROJECT
from symphony.config import AGENT_SECTIONS, WorkflowFile, parse_workflow
from symphony.daemon.context import build_context
from symphony.domain import Issue, ToolResult
from symphony.http import Flow, HttpResponse, Purpose, Request, run_flow
from symphony.processes.local import LocalHost
from symphony.trackers.deciding_labels import DecidingLabels

DECIDING = frozenset(
    {"agent::claude", "agent/claude", "symphony", "use-claude", "phase two", "ship-it", "bug, urgent"}
)
GITLAB = f"/projects/{GITLAB_PROJECT.replace('/', '%2F')}"
GITHUB, FORGEJO = f"/repos/{OWNER}/{REPO}", f"/repos/{FORGEJO_OWNER}/{FORGEJO_REPO}"
JIRA = "/rest/api/3"
TASK = f"/tasks/{gid_of(1)}"
UUID, OTHER_UUID = "0f9a2b3c-4d5e-4f60-8a9b-0c1d2e3f4a5b", "1f9a2b3c-4d5e-4f60-8a9b-0c1d2e3f4a5b"
IDS = {"5": "skill:none", "6": "docs", UUID: "Ship-It", OTHER_UUID: "docs", "LA_deciding": "Ship-It"}
IDS |= {"LA_harmless": "docs"}
"""What the services call their labels by id."""

Call = tuple[str, str, str, Any]


INPUT = {"labelIds": ["LA_deciding"]}


def graphql(query: str, **variables: Any) -> Mapping[str, Any]:
    return {"query": query, "variables": variables}


def add(label_id: str) -> Mapping[str, Any]:
    return graphql(f'mutation {{ a: addLabelsToLabelable(input: {{labelIds: ["{label_id}"]}}) {{ x }} }}')


def label(label_id: str) -> Mapping[str, Any]:
    return graphql(f'mutation {{ issueAddLabel(id: "I", labelId: "{label_id}") {{ success }} }}')


SETS: list[Call] = [
    ("github", "POST", f"{GITHUB}/issues/1/labels", {"labels": ["use-claude"]}),
    ("github", "POST", f"{GITHUB}/issues/1/labels", ["Use-Claude"]),
    ("github", "POST", f"{GITHUB}/issues/1/labels", {"labels": [{"name": " skill:none "}]}),
    ("github", "post", f"{GITHUB}/issues/1/%6cabels", {"labels": ["SKILL:deploy"]}),
    ("github", "POST", f"{GITHUB}/ISSUES/1/LABELS", {"LABELS": ["ship-it"]}),
    ("github", "POST", f"{GITHUB}/issues/1/%256cabels", ["ship-it"]),
    ("github", "PUT", f"{GITHUB}/issues/1/labels", {"labels": ["symphony", "ship-it"]}),
    ("github", "PUT", f"{GITHUB}/issues/1/labels", {"labels": ["docs"]}),
    ("github", "PUT", f"{GITHUB}/issues/1/labels", None),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels", None),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels/symphony", None),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels/phase%20Two", None),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels/%2573ymphony", None),
    ("github", "PATCH", f"{GITHUB}/issues/1", {"labels": ["docs"]}),
    ("github", "PATCH", f"{GITHUB}/issues/1", {"title": "x", "labels": []}),
    ("github", "PATCH", f"{GITHUB}/issues/1?labels[]=docs", {"title": "x"}),
    ("github", "POST", f"{GITHUB}/issues", {"title": "x", "labels": ["symphony"]}),
    ("github", "POST", f"{GITHUB}/labels", {"name": "skill:deploy", "color": "ffffff"}),
    ("github", "PATCH", f"{GITHUB}/labels/docs", {"new_name": "ship-it"}),
    ("github", "PATCH", f"{GITHUB}/labels/ship-it", {"new_name": "docs"}),
    ("github", "DELETE", f"{GITHUB}/labels/ship-it", None),
    ("github", "POST", f"{GITHUB}/import/issues", {"issue": {"title": "x", "labels": ["symphony"]}}),
    ("github", "POST", f"{GITHUB}/issues/1/labels", {"labels": [5]}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": [5]}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": ["ship-it", 6]}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": [404]}),
    ("forgejo", "PUT", f"{FORGEJO}/issues/1/labels", {"labels": [6]}),
    ("forgejo", "DELETE", f"{FORGEJO}/issues/1/labels/5", None),
    ("forgejo", "PATCH", f"{FORGEJO}/labels/6", {"name": "skill:none"}),
    ("forgejo", "PATCH", f"{FORGEJO}/labels/5", {"name": "docs"}),
    ("forgejo", "PATCH", f"{FORGEJO}/pulls/2", {"labels": [6]}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"add_labels": "docs, skill:none"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"add_labels": ["docs", "ship-it"]}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1?add_labels=docs%2Cship-it", None),
    ("gitlab", "PUT", f"{GITLAB}/issues/1?remove_labels[]=symphony", {"title": "x"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"remove_labels": "symphony"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"add_labels": "Agent::none"}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": ["agent/none"]}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"labels": "docs"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"labels": ""}),
    ("gitlab", "PUT", f"{GITLAB}/merge_requests/2", {"add_labels": "ship-it"}),
    ("gitlab", "PUT", f"{GITLAB}/merge_requests/2", {"labels": "docs"}),
    ("gitlab", "PUT", f"{GITLAB}/labels/5", {"new_name": "docs"}),
    ("gitlab", "PUT", f"{GITLAB}/labels/docs", {"new_name": "skill:none"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1?description=%2Flabel%20~ship-it", None),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"labels": [{"add": "ship-it"}]}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"labels": [{"remove": "symphony"}]}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"labels": [{"set": ["docs"]}]}}),
    ("jira", "PUT", f"{JIRA}/issue/10001", {"fields": {"labels": ["docs"]}}),
    ("jira", "POST", f"{JIRA}/issue", {"fields": {"project": {"key": "PAY"}, "labels": ["symphony"]}}),
    (
        "jira",
        "POST",
        f"{JIRA}/issue/PAY-1/transitions",
        {"transition": {"id": "1"}, "update": {"labels": [{"add": "skill:none"}]}},
    ),
    (
        "jira",
        "POST",
        f"{JIRA}/bulk/issues/fields",
        {"editedFieldsInput": {"labelsFields": [{"labels": [{"name": "ship-it"}]}]}},
    ),
    ("asana", "POST", f"{TASK}/addTag", {"data": {"tag": "5"}}),
    ("asana", "POST", f"{TASK}/ADDTAG", {"data": {"tag": "404"}}),
    ("asana", "POST", f"{TASK}/removeTag?tag=5", None),
    ("asana", "POST", "/tasks", {"data": {"name": "x", "tags": ["6", "5"]}}),
    ("asana", "PUT", "/tags/6", {"data": {"name": "ship-it"}}),
    ("asana", "GET", "/tags/5?opt_method=DELETE", None),
    ("asana", "POST", "/batch", {"data": {"actions": [{"relative_path": f"{TASK}/addTag"}]}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"category_id": 5}}),
    ("redmine", "PUT", "/issues/1.json?issue[tracker_id]=9", {"issue": {"subject": "x"}}),
    ("redmine", "PUT", "/issue_categories/6.json", {"issue_category": {"name": "ship-it"}}),
    *(
        ("github", "POST", "/graphql", body)
        for body in (
            add("LA_deciding"),
            add("LA_unknown"),
            graphql("mutation M($i: I!) { addLabelsToLabelable(input: $i) { x } }", i=INPUT),
            graphql("mutation { removeLabelsFromLabelable(input: $i) { x } }", i=INPUT),
            graphql('mutation { updateIssue(input: {id: "I_1", labelIds: ["LA_harmless"]}) { x } }'),
            graphql('mutation { clearLabelsFromLabelable(input: {labelableId: "I_1"}) { x } }'),
            graphql('mutation { createLabel(input: {name: "ship\\u002dit"}) { x } }'),
            graphql('mutation { createLabel(input: {name: """ship-it"""}) { x } }'),
            graphql("mutation { ...F } fragment F on M { addLabelsToLabelable(input: $i) { x } }", i=INPUT),
            graphql('mutation { #"\n createIssue(input: {issueTemplate: "a.md"}) { x } #"\n }'),
        )
    ),
    *(
        ("linear", "", "", body)
        for body in (
            label(UUID),
            graphql("mutation { issueRemoveLabel(id: $i, labelId: $l) { success } }", l=UUID.upper()),
            graphql("mutation { issueAddLabel(id: $i, labelId: $l) { success } }", l=UUID.replace("-", "")),
            graphql("mutation { issueUpdate(id: $i, input: $c) { success } }", c={"labelIds": [OTHER_UUID]}),
            graphql("mutation { issueUpdate(id: $i, input: $c) { success } }", c={"removedLabelIds": [UUID]}),
            graphql("mutation { issueCreate(input: $c) { success } }", c={"templateId": OTHER_UUID}),
            graphql("mutation { issueCreate(input: $c) { success } }", c={"labelIds": [OTHER_UUID, UUID]}),
            graphql('mutation { issueLabelCreate(input: {name: "Skill:None"}) { success } }'),
            graphql("mutation { issueLabelUpdate(id: $l, input: {name: $n}) { success } }", n="ship-it"),
        )
    ),
]  # fmt: skip

HARMLESS: list[Call] = [
    ("github", "POST", f"{GITHUB}/issues/1/labels", {"labels": ["docs"]}),
    ("github", "POST", f"{GITHUB}/issues/1/labels", ["docs", "bug"]),
    ("github", "PUT", f"{GITHUB}/issues/1/labels", {"labels": ["symphony", "bug"]}),
    ("github", "PATCH", f"{GITHUB}/issues/1", {"labels": ["Symphony", "bug"]}),
    ("github", "DELETE", f"{GITHUB}/issues/1/labels/docs", None),
    ("github", "POST", f"{GITHUB}/issues", {"title": "x", "labels": ["bug"]}),
    ("github", "POST", f"{GITHUB}/labels", {"name": "bug", "color": "ffffff"}),
    ("github", "PATCH", f"{GITHUB}/issues/1", {"title": "skill:none", "body": "ship-it"}),
    ("github", "POST", f"{GITHUB}/issues/1/comments", {"body": "labels: ship-it, skill:none"}),
    ("github", "GET", f"{GITHUB}/issues?labels=symphony", None),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": [6]}),
    ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": ["docs"]}),
    ("forgejo", "DELETE", f"{FORGEJO}/issues/1/labels/6", None),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"add_labels": "docs,bug", "remove_labels": "later"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"labels": "symphony,bug"}),
    ("gitlab", "PUT", f"{GITLAB}/issues/1", {"add_labels": "workflow::review,agents::x,agent"}),
    ("github", "POST", f"{GITHUB}/issues/1/labels", {"labels": ["agent/none", "agent::none"]}),
    ("gitlab", "POST", f"{GITLAB}/issues/1/notes", {"body": "ship-it"}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"labels": [{"add": "docs"}, {"remove": "bug"}]}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"fields": {"labels": ["symphony", "bug"]}}),
    ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"fields": {"summary": "ship-it"}}),
    ("asana", "POST", f"{TASK}/addTag", {"data": {"tag": "6"}}),
    ("asana", "PUT", TASK, {"data": {"name": "ship-it"}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"category_id": 6}}),
    ("redmine", "PUT", "/issues/1.json", {"issue": {"notes": "skill:none"}}),
    *(
        ("github", "POST", "/graphql", body)
        for body in (
            add("LA_harmless"),
            graphql('mutation { createLabel(input: {name: "docs"}) { x } }'),
            graphql("mutation { addComment(input: $c) { x } }", c={"body": "ship-it, label"}),
            graphql('query { repository { labels(first: 5, query: "ship-it") { nodes { name } } } }'),
        )
    ),
    *(
        ("linear", "", "", body)
        for body in (
            label(OTHER_UUID),
            graphql("mutation { issueCreate(input: $c) { success } }", c={"labelIds": [OTHER_UUID]}),
            graphql("mutation { commentCreate(input: $c) { success } }", c={"body": "skill:none"}),
            graphql("mutation { issueUpdate(id: $i, input: $c) { issue { labels(first: 9) { x } } } }"),
        )
    ),
]  # fmt: skip


def called(kind: str, method: str, path: str, body: Any) -> tuple[ToolResult, list[Request]]:
    """What the session of issue 1 is told, and what was sent of its request."""
    sent: list[Request] = []

    async def run() -> ToolResult:
        desk = DESKS[kind]()
        desk.put(1, **({} if kind == "redmine" else {"labels": ["symphony", "docs"]}))
        flows = desk.tracker.flows
        flows.deciding_labels = DecidingLabels(DECIDING, flows.label_scope)
        (issue,) = await desk.tracker.fetch_issues_by_states([desk.todo])

        async def ask(request: Request) -> HttpResponse:
            if request.endpoint == flows.tool_name:
                sent.append(request)
                return HttpResponse(status=200, address="", body={})
            if request.endpoint == "SymphonyLabelNames":
                nodes = [
                    {"name": IDS[each]} if each in IDS else None for each in request.body["variables"]["ids"]
                ]
                known = [node for node in nodes if node]
                return HttpResponse(
                    status=200, address="", body={"data": {"nodes": nodes, "issueLabels": {"nodes": known}}}
                )
            if "label" in request.path or "/tags/" in request.path or "categories" in request.path:
                name = IDS.get(request.path.rpartition("/")[2].removesuffix(".json"))
                record = {"name": name, "data": {"name": name}, "issue_category": {"name": name}}
                return HttpResponse(status=404 if name is None else 200, address="", body=record)
            if request.path == "/trackers.json":
                trackers = [{"id": 9, "name": "Ship-It"}, {"id": 6, "name": "Task"}]
                return HttpResponse(status=200, address="", body={"trackers": trackers})
            return await desk.tracker.http.run(single(request), purpose=Purpose.TOOL)

        arguments = body if kind == "linear" else {"method": method.upper(), "path": path, "body": body}
        return await run_flow(flows.call_tool(arguments, issue), ask)

    return anyio.run(run), sent


def single(request: Request) -> Flow[HttpResponse]:
    return (yield request)


@pytest.mark.parametrize(("kind", "method", "path", "body"), SETS)
def test_no_spelling_sets_or_removes_a_label_that_decides(
    kind: str, method: str, path: str, body: Any
) -> None:
    result, sent = called(kind, method, path, body)
    assert not sent
    assert json.loads(result.text)["error"]["category"] == "deciding_label"


@pytest.mark.parametrize(("kind", "method", "path", "body"), HARMLESS)
def test_other_labels_comments_and_reads_pass(kind: str, method: str, path: str, body: Any) -> None:
    result, sent = called(kind, method, path, body)
    assert result.success, result.text
    assert len(sent) == 1


# --- any spelling ----------------------------------------------------------------------------------------

LOOK_ALIKES = {"s": "\u017f", "k": "\u212a", " ": "\u00a0", "i": "\u2170", "l": "\u217c"}
WAYS: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "wide": lambda char: chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else "\u3000",
    "look-alike": lambda char: LOOK_ALIKES.get(char, char),
    "unseen behind it": lambda char: f"{char}\u200b",
    "soft hyphen before it": lambda char: f"\u00ad{char}",
}
PEOPLES = ("use-claude", "phase two", "ship-it", "skill:none", "skill:deploy")
"""Labels that issue 1 does not have."""
FORGES = (("github", GITHUB), ("forgejo", FORGEJO))


def spelled(random: Random, name: str) -> str:
    ways = random.choices(tuple(WAYS.values()), k=random.randint(1, 4))
    blank = random.choice(("", " ", "\t", "\u2003"))
    return blank + "".join(random.choice(ways)(char) for char in name) + blank


def in_path(random: Random, text: str) -> str:
    """A step of a path, in which any character is encoded, or encoded twice."""

    def coded(char: str) -> str:
        code = "".join(f"%{byte:02x}" for byte in char.encode())
        return random.choice((quote(char, safe=""), quote(char, safe=""), code, code.upper(), quote(code)))

    return "".join(map(coded, text))


def nested(random: Random, names: list[str]) -> Any:
    """A list of labels as some service takes it."""
    return random.choice(
        (
            names,
            [{"name": name} for name in names],
            [[name] for name in names],
            {str(at): name for at, name in enumerate(names)},
            json.dumps(names),
            [quote(name) for name in names],
        )
    )


def any_write(random: Random, names: list[str], step: Callable[[str], str]) -> Call:
    """A request that adds the labels, or the last of them; `step` spells a step of its path."""
    (forge, repo), last, text = random.choice(FORGES), names[-1], ", ".join(names)
    key = random.choice(("labels", "Labels", "LABELS"))
    number, operations = f"{repo}/{step('issues')}/1", [{"add": name} for name in names]
    several = random.choice((names, text))
    calls: list[Call] = [
        (forge, "POST", f"{number}/{step('labels')}", {key: nested(random, names)}),
        (forge, "post", f"{number}/{step('labels')}", {key: [last]}),
        (forge, "PUT", f"{number}/{step('labels')}", {key: ["symphony", *names]}),
        (forge, "POST", f"{repo}/{step('issues')}", {"title": "x", key: names}),
        (forge, "POST", f"{repo}/{step('labels')}", {"name": last, "color": "ffffff"}),
        ("github", "POST", f"{GITHUB}/issues/1/{step('labels')}", names),
        ("github", "PATCH", f"{GITHUB}/issues/1", {key: ["symphony", *names]}),
        ("github", "DELETE", f"{GITHUB}/issues/1/labels/{step(last)}", None),
        ("gitlab", "PUT", f"{GITLAB}/issues/1", {random.choice(("add_labels", "remove_labels")): several}),
        ("gitlab", "PUT", f"{GITLAB}/issues/1", {"title": "x", "labels": ["symphony", *names]}),
        ("gitlab", "PUT", f"{GITLAB}/issues/1?add_labels={quote(text)}", {"title": "x"}),
        ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"update": {"labels": operations}}),
        ("jira", "PUT", f"{JIRA}/issue/PAY-1", {"fields": {"labels": ["symphony", *names]}}),
        (
            "github",
            "POST",
            "/graphql",
            graphql(f"mutation {{ createLabel(input: {{name: {escaped(last)}}}) {{ x }} }}"),
        ),
        ("linear", "", "", graphql("mutation { issueLabelCreate(input: $c) { success } }", c={"name": last})),
    ]
    return random.choice(calls)


def escaped(text: str) -> str:
    return json.dumps(text) if len(text) % 2 else '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'


def any_id_write(random: Random, *, decides: bool) -> Call:
    """A request that adds or removes a label by its id."""
    one, uuid, node = ("5", UUID, "LA_deciding") if decides else ("6", OTHER_UUID, "LA_harmless")
    number = random.choice((one, int(one)))
    calls: list[Call] = [
        ("forgejo", "POST", f"{FORGEJO}/issues/1/labels", {"labels": random.sample((6, number), 2)}),
        ("forgejo", "DELETE", f"{FORGEJO}/issues/1/labels/{one}", None),
        ("asana", "POST", f"{TASK}/{random.choice(('addTag', 'removeTag'))}", {"data": {"tag": number}}),
        ("asana", "POST", f"{TASK}/addTag?tag={one}", None),
        ("github", "POST", "/graphql", add(node)),
        (
            "linear",
            "",
            "",
            label(random.choice((uuid, uuid.upper(), uuid.replace("-", ""))) if decides else uuid),
        ),
        (
            "linear",
            "",
            "",
            graphql("mutation { issueCreate(input: $c) { x } }", c={"labelIds": [OTHER_UUID, uuid]}),
        ),
    ]
    return random.choice(calls)


def test_any_spelling_of_a_label_that_decides_is_refused(rounds: Rounds) -> None:
    for random in rounds(60):
        names = ["docs", spelled(random, random.choice(PEOPLES))][-random.randint(1, 2) :]
        step = random.choice((quote, partial(in_path, random)))
        for call in (any_write(random, names, step), any_id_write(random, decides=True)):
            result, sent = called(*call)
            assert not sent, call
            assert not result.success


def test_any_other_label_and_any_comment_pass(rounds: Rounds) -> None:
    for random in rounds(60):
        names = [
            f"{random.choice(('docs', 'ship', 'symphony2', 'my-skill:'))}{random.randint(0, 999)}"
            for _ in "ab"
        ]
        text = f"Set {spelled(random, random.choice(PEOPLES))}"
        comment = (*random.choice(FORGES), {"body": text})
        for call in (
            any_write(random, names, str),
            any_id_write(random, decides=False),
            (comment[0], "POST", f"{comment[1]}/issues/1/comments", comment[2]),
        ):
            result, sent = called(*call)
            assert result.success, (call, result.text)
            assert len(sent) == 1


@pytest.mark.parametrize("key", ["body", "description"])
def test_a_quick_action_in_a_text_labels_nothing(key: str) -> None:
    path, method = (f"{GITLAB}/issues/1/notes", "POST") if key == "body" else (f"{GITLAB}/issues/1", "PUT")
    _, (sent,) = called("gitlab", method, path, {key: "Done.\n/label ~ship-it\n  /unlabel ~symphony"})
    lines = sent.body[key].splitlines()
    assert "Done." in lines
    assert not any(line.lstrip().startswith("/") for line in lines)


def test_a_daemon_knows_the_labels_of_its_settings(tmp_path: Path) -> None:
    """Each of them is refused before anything is sent."""
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GITHUB_TOKEN": "ghp_0123456789"}
    front = {
        "tracker": {
            "kind": "github",
            "provider": {"repo": "acme/app"},
            "active_states": ["open"],
            "terminal_states": ["closed"],
            "required_labels": ["symphony"],
        },
        "workspace": {"root": str(tmp_path / "root")},
        "agent": {
            "rules": [{"use": "codex", "label": "Use-Codex"}],
            "phases": {"default": "build", "rules": [{"phase": "test", "label": "tests"}]},
        },
        "forge": {"land_limits": {"labels": ["ship-it"]}},
    }
    file = WorkflowFile(path=tmp_path / "WORKFLOW.md", data=f"---\n{json.dumps(front)}\n---\nGo.\n".encode())
    workflow = parse_workflow(
        file, environment=environment, tracker_kinds={"github"}, agent_kinds=AGENT_SECTIONS
    )
    context = build_context(workflow, host=LocalHost(), environment=environment)
    issue = Issue(id="1", identifier="GH-1", title="x", state="open", dispatchable=True)
    for label in ("symphony", "use-codex", "tests", "ship-it", "skill:none"):
        arguments = {"method": "POST", "path": "/repos/acme/app/issues/1/labels", "body": {"labels": [label]}}

        async def call(arguments: Mapping[str, Any] = arguments) -> ToolResult:
            return await context.tools.execute_agent_tool("github_api", arguments, issue=issue)

        assert json.loads(anyio.run(call).text)["error"]["category"] == "deciding_label"
