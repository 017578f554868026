"""Mistakes in `schedules`: each with its line, at `check`, at the start and at a reload."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from symphony.config import ScheduleSettings, WorkflowFile, render_scheduled_issue
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


def schedule(**settings: Any) -> ScheduleSettings:
    return ScheduleSettings.model_validate({"name": "n", "cron": "0 3 * * *", "title": "T", **settings})


def text_of(folder: Path, settings: ScheduleSettings) -> tuple[str, str]:
    now = datetime(2026, 3, 1, tzinfo=settings.zone)
    return render_scheduled_issue(settings, base_dir=folder, now=now, previous=None)


def test_title_and_body_are_rendered_in_the_time_zone_of_the_schedule(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("Of {{ now }}", encoding="utf-8")
    found = text_of(tmp_path, schedule(title=" Week\n9 ", file="b.md", timezone="Europe/Berlin"))
    assert found[0] == "Week 9"
    assert "+01:00" in found[1]
    assert text_of(tmp_path, schedule()) == ("T", "")


def test_a_text_that_cannot_be_used_is_told_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.md").write_bytes(b"\xff")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for settings, word in (
        ({"title": "{% if false %}x{% endif %}"}, "title"),
        ({"body": "{{ 'ab' | ljust }}"}, "body"),
        ({"body": "{{ 1 | divided_by: 0 }}"}, "body"),
        ({"body": "{{ 99999999999999 | date: '%Y' }}"}, "body"),
        ({"body": "x" * 40_000}, "the body"),
        ({"file": "latin.md"}, "file"),
        ({"file": "folder"}, "file"),
        ({"file": "file/below"}, "file"),
        ({"file": "x" * 300}, "file"),
    ):
        with pytest.raises(ValueError, match=f"^{word}") as found:
            text_of(tmp_path, schedule(**settings))
        assert "\n" not in str(found.value)
