"""Mistakes in `schedules`: each with its line, at `check`, at the start and at a reload."""

from pathlib import Path

import pytest

from symphony.config import WorkflowFile
from symphony.daemon.admission import judge

GOOD = "{name: n, cron: 0 3 * * *, title: T}"


def failures(folder: Path, *schedules: str, tracker: str = "{kind: markdown}") -> list[tuple[str, str]]:
    """Where each failure is, by line, and its first word."""
    rows = "\n".join(f"  - {each}" for each in schedules)
    text = f"---\ntracker: {tracker}\nworkspace: {{root: {folder}/w}}\nschedules:\n{rows}\n---\nDo it.\n"
    file = WorkflowFile(path=folder / "WORKFLOW.md", data=text.encode())
    judged = judge(file, environment={"ASANA_PAT": "a-secret-of-asana"}, acknowledged=None)
    return [(str(each.where).rpartition(":")[2], each.message.partition(" ")[0]) for each in judged.failures]


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        ("{name: n, cron: 0 0 30 2 *, title: T}", "cron"),
        ("{name: n, cron: '@daily', title: T}", "cron"),
        ("{name: n, cron: 0 3 * * *, title: T, timezone: Mars/Olympus}", "timezone"),
        ("{name: n, cron: 0 3 * * *, title: T, timezone: ../UTC}", "timezone"),
        ("{name: a b, cron: 0 3 * * *, title: T}", "name"),
        ("{name: n, cron: 0 3 * * *, title: ' '}", "title"),
        ("{name: n, cron: 0 3 * * *, title: '{{ unknown }}'}", "title"),
        ("{name: n, cron: 0 3 * * *, title: '{% if %}'}", "title"),
        ("{name: n, cron: 0 3 * * *, title: T, body: '{{ previous.identifier }}'}", "body"),
        ("{name: n, cron: 0 3 * * *, title: T, file: missing.md}", "file"),
        ("{name: n, cron: 0 3 * * *, title: T, file: a.md, body: b}", "file"),
        ("{name: n, cron: 0 3 * * *}", "title"),
        (GOOD, "name"),  # the second one of that name
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, schedule: str, key: str) -> None:
    first = GOOD if schedule == GOOD else GOOD.replace("name: n", "name: first")
    assert failures(tmp_path, first, schedule) == [("6", f"schedules[1].{key}")]


def test_good_ones_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("{% if previous %}{{ previous.state }}{% endif %}", encoding="utf-8")
    more = (
        "{name: m, cron: '*/5 * * * *', timezone: Europe/Berlin, title: '{{ now }}', file: b.md, labels: [a]}"
    )
    assert failures(tmp_path, GOOD, more) == []


def test_a_tracker_that_cannot_create_is_told(tmp_path: Path) -> None:
    gid, states = "1200000000000001", "active_states: [a], terminal_states: [b]"
    asana = f"{{kind: asana, provider: {{api_key: $ASANA_PAT, project_gid: '{gid}'}}, {states}}}"
    backlog = tmp_path / "backlog"
    (backlog / "tasks").mkdir(parents=True)
    (backlog / "config.yml").write_text('statuses: ["To Do", "Done"]\n', encoding="utf-8")
    other_program = "{kind: markdown, provider: {layout: backlog.md, path: backlog}}"
    for tracker in (asana, other_program):
        assert [where for where, _ in failures(tmp_path, GOOD, tracker=tracker)] == ["4"]
