"""Scrapes of a daemon: `GET /metrics` on its control socket, parsed as Prometheus would."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from harness.project import DEADLINE_S, Project

__all__ = ["Scrape", "parsed", "scrape"]


class Scrape(dict[str, dict[frozenset[tuple[str, str]], float]]):
    """The values of each sample name by labels."""

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have at least these labels; 0 without one."""
        found = self.get(name, {})
        return sum(value for key, value in found.items() if labels.items() <= dict(key).items())

    def labels(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {dict(key)[label] for key in self.get(name, {})}


def parsed(text: str) -> Scrape:
    """The samples of an exposition."""
    found = Scrape()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def scrape(project: Project) -> Scrape:
    """The metrics of the project's daemon at this moment."""
    transport = httpx.HTTPTransport(uds=project.control_socket, verify=False)
    with httpx.Client(transport=transport, base_url="http://symphony", timeout=DEADLINE_S) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(answer.text)
