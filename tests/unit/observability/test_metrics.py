"""The definitions of metrics, and what docs say of them."""

import re
from pathlib import Path

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
