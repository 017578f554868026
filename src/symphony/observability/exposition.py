"""Writes metrics in the text format of Prometheus. Loaded with the first scrape."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from symphony.observability.metrics import METRICS, Distribution, Metric, Sample

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""The media type of `exposition`."""


def exposition(samples: Iterable[Sample]) -> bytes:
    """The samples, every metric with its help, and the `process_*` metrics of this process. Blocking."""
    registry = CollectorRegistry()
    registry.register(_Collector(samples))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collector:
    """Passes the samples to the Prometheus client, by metric."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_metric: dict[Metric, list[Sample]] = {}
        for sample in samples:
            self._by_metric.setdefault(sample.metric, []).append(sample)

    def collect(self) -> Iterator[Family]:
        """All metrics; those without a sample have no value."""
        for metric in METRICS:
            yield _family(metric, self._by_metric.get(metric, ()))


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = [*(f"{bound:g}" for bound in metric.buckets), "+Inf"]
        for sample in samples:
            if isinstance(sample.value, Distribution):
                counts = accumulate(sample.value.counts)
                histogram.add_metric(sample.labels, list(zip(bounds, counts, strict=True)), sample.value.sum)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for sample in samples:
        if not isinstance(sample.value, Distribution):
            family.add_metric(sample.labels, sample.value)
    return family
