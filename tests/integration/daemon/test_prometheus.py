"""A Prometheus from Debian scrapes the daemon, with the rules that are shipped."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.project import DEADLINE_S, Project, until
from harness.real import require_program

pytestmark = pytest.mark.slow

ALERTS = Path(__file__).parents[3] / "deploy" / "alerts.yaml"
CONFIG = """\
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: symphony
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@contextmanager
def prometheus(place: Path, config: str) -> Iterator[httpx.Client]:
    """A client of a Prometheus that serves until the end."""
    program = require_program("prometheus", "Debian: prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    file = place / "prometheus.yml"
    file.write_text(config)
    arguments = [
        f"--config.file={file}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (place / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        try:
            with httpx.Client(
                base_url=f"http://{address}/api/v1", trust_env=False, timeout=DEADLINE_S
            ) as client:
                yield client
        finally:
            process.kill()
            process.wait()


def test_prometheus_scrapes_with_the_token_file_and_evaluates_the_shipped_alerts(project: Project) -> None:
    workflow = project.workflow()
    project.issue("SYM-1", [{"wait_for": "never"}])
    with project.daemon("--port", "0") as daemon:
        port = daemon.wait_for("http_serving")["port"]
        token = project.state_dir / "operator.token"
        with prometheus(project.root, CONFIG.format(alerts=ALERTS, token=token, port=port)) as client:

            def result(query: str) -> list[Any]:
                try:
                    answer = client.get("/query", params={"query": query})
                except httpx.TransportError:  # it still starts
                    return []
                return list(answer.json()["data"]["result"]) if answer.is_success else []

            def shown(query: str) -> dict[str, Any]:
                log = project.root / "prometheus.log"
                (found,) = until(lambda: result(query) or None, lambda: f"{query}\n{log.read_text()}")
                return dict(found["metric"])

            assert shown('symphony_issues{status="running"} == 1')["job"] == "symphony"
            assert shown("up == 1")
            project.write(workflow.name, "---\nagent: {max_turns: many}\n---\n")
            pending = shown('ALERTS{alertname="SymphonyWorkflowInvalid"}')
            assert pending["alertstate"] == "pending"
            (group,) = client.get("/rules").json()["data"]["groups"]
            assert [rule["name"] for rule in group["rules"] if rule["health"] != "ok"] == []
            assert len(group["rules"]) == 8
