"""The definitions of metrics, and what docs say of them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from harness.real import require_program
from symphony.observability.metrics import METRICS

ROOT = Path(__file__).parents[3]


def test_the_page_has_every_metric_with_its_labels_and_no_other() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(symphony_\w+)` \| (\w+) \| ([^|]+) \|", page, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == {metric.name: (metric.kind, metric.labels) for metric in METRICS}


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert (metric.kind == "histogram") == bool(metric.buckets), metric.name
        assert metric.buckets == tuple(sorted(metric.buckets)), metric.name


def _expressions() -> list[tuple[str, str]]:
    """All queries of the board and of the alerts, with where they stand."""
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    found = [(panel["title"], one["expr"]) for panel in board["panels"] for one in panel.get("targets", ())]
    return found + [(rule["alert"], rule["expr"]) for rule in _alerts()]


def _alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def test_the_board_and_the_alerts_use_metrics_and_labels_that_exist() -> None:
    known = {metric.name: {*metric.labels, "instance"} for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "histogram":
            known[f"{metric.name}_bucket"] = {*metric.labels, "instance", "le"}
    wrong = []
    for where, expression in _expressions():
        for name, selector in re.findall(r"\b(symphony_\w+)(?:\{([^}]*)\})?", expression):
            used = set(re.findall(r"(\w+)=~?\"", selector))
            if name not in known or not used <= known[name]:
                wrong.append((where, name))
        grouped = {
            one.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for one in group.split(",")
        }
        names = re.findall(r"\bsymphony_\w+", expression)
        if not all(grouped <= known.get(name, set()) for name in names):
            wrong.append((where, str(grouped)))
    assert wrong == []


def test_every_alert_leads_to_a_section_that_says_what_to_do() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    sections = {
        f"docs/metrics.md#{heading.lower()}" for heading in re.findall(r"^### (\w+)$", page, re.MULTILINE)
    }
    assert {alert["annotations"]["runbook_url"] for alert in _alerts()} == sections
    assert len(_alerts()) == 8


def test_promtool_reads_the_alerts_and_every_query_of_the_board(tmp_path: Path) -> None:
    promtool = require_program("promtool", "Debian: prometheus")
    queries = [{"record": "one", "expr": text.replace("$instance", ".*")} for _, text in _expressions()]
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": [{"name": "board", "rules": queries}]}))
    alerts = ROOT / "deploy" / "alerts.yaml"
    done = subprocess.run(
        [promtool, "check", "rules", rules, alerts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
