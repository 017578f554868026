"""The files of deploy/kuberay: of the right shape, agreed with one another, and with no secret inside.

Core kinds and the pods within the RayCluster are judged by Kubernetes' own schemas. The keys of the
RayCluster itself are those of KubeRay's reference of its API, written down here: no package has its schema.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from harness.real import require_named
from symphony.config import is_secret_variable, read_workflow_file
from symphony.daemon.admission import admit

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kuberay"
KUBERNETES = "1.34"
RAY_CLUSTER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"],
    "properties": {
        "rayVersion": {"type": "string"},
        "authOptions": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"mode": {"enum": ["disabled", "token"]}},
        },
        "headGroupSpec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["rayStartParams", "template"],
            "properties": {
                "serviceType": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
                "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
                "template": {"type": "object"},
            },
        },
        "workerGroupSpecs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
                "properties": {
                    "groupName": {"type": "string", "pattern": "^[a-z0-9-]+$"},
                    "replicas": {"type": "integer"},
                    "minReplicas": {"type": "integer"},
                    "maxReplicas": {"type": "integer"},
                    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
                    "template": {"type": "object"},
                },
            },
        },
    },
}


def documents() -> list[dict[str, Any]]:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    return [
        document
        for name in kustomization["resources"]
        for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
    ]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


def groups() -> list[dict[str, Any]]:
    """The head's group, and those of workers."""
    (cluster,) = of_kind("RayCluster")
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def pods() -> list[dict[str, Any]]:
    """The pods of all kinds."""
    (daemon,) = of_kind("StatefulSet")
    return [*(group["template"]["spec"] for group in groups()), daemon["spec"]["template"]["spec"]]


def containers() -> list[dict[str, Any]]:
    return [one for pod in pods() for one in (*pod.get("initContainers", ()), *pod["containers"])]


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", ())}


def test_core_kinds_and_pods_have_the_shape_of_kubernetes(tmp_path: Path) -> None:
    validator = require_named(
        "kubernetes-validate", "PyPI: kubernetes-validate", "SYMPHONY_TEST_KUBERNETES_VALIDATE"
    )
    judged = [document for document in documents() if document["kind"] != "RayCluster"]
    judged += [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod} for pod in pods()]
    (tmp_path / "good.yaml").write_text(yaml.safe_dump_all(judged), encoding="utf-8")
    judged[-1]["spec"]["containers"][0]["imagine"] = "x"
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(judged[-1]), encoding="utf-8")

    def judge(name: str) -> subprocess.CompletedProcess[str]:
        command = [validator, "--strict", "-k", KUBERNETES, str(tmp_path / name)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = judge("good.yaml")
    assert good.returncode == 0, good.stdout + good.stderr
    bad = judge("bad.yaml")
    assert bad.returncode != 0
    assert "imagine" in bad.stdout + bad.stderr


def test_the_ray_cluster_has_the_keys_of_the_reference() -> None:
    (cluster,) = of_kind("RayCluster")
    assert cluster["apiVersion"] == "ray.io/v1"
    jsonschema.validate(cluster["spec"], RAY_CLUSTER)
    assert cluster["spec"]["authOptions"] == {"mode": "token"}


def test_the_version_of_ray_is_the_one_that_the_tests_drive() -> None:
    used = re.search(r"^RAY_VERSION=(\S+)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    assert used is not None
    (cluster,) = of_kind("RayCluster")
    assert cluster["spec"]["rayVersion"] == used[1]
    assert f"RAY={used[1]}" in (ROOT / "docs/ray.md").read_text(encoding="utf-8")


def test_the_workflow_loads_and_fits_the_cluster() -> None:
    secrets = {"GITHUB_TOKEN": "x", "ANTHROPIC_API_KEY": "x", "SYMPHONY_WORKSPACES": "/var/lib/workspaces"}
    file = read_workflow_file(FOLDER / "WORKFLOW.md")
    workflow = admit(file, environment={"HOME": "/home/symphony", **secrets}, acknowledged=False)
    assert workflow.warnings == ()
    worker = workflow.settings.worker
    (cluster,) = of_kind("RayCluster")
    assert worker.ray.address == f"{cluster['metadata']['name']}-head-svc:6379"
    head, *workers = groups()
    assert "resources" not in head["rayStartParams"], "the head runs no session"
    for group in workers:
        slots = group["rayStartParams"]["resources"]
        assert re.search(rf'^"{{\\"{worker.ray.slots_resource}\\": \d+}}"$', slots)
    (daemon,) = of_kind("StatefulSet")
    pod = daemon["spec"]["template"]["spec"]
    (beside,) = (one for one in pod["initContainers"] if one.get("restartPolicy") == "Always")
    assert f"--address={worker.ray.address}" in beside["args"]
    assert not any("resources" in argument for argument in beside["args"])
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    assert kustomization["generatorOptions"]["disableNameSuffixHash"], "a new name would restart the pod"
    mounts = pod["containers"][0]["volumeMounts"]
    assert not [mount for mount in mounts if "subPath" in mount], "such a file is never updated"
    passed = variables(pod["containers"][0])
    assert {f"{name}_FILE" for name in worker.env} <= passed.keys()


def test_secrets_are_only_referred_to() -> None:
    assert not of_kind("Secret")
    for container in containers():
        for name, value in variables(container).items():
            assert not is_secret_variable(name), f"{name} would hold a secret itself"
            assert isinstance(value, str) or set(value) == {"fieldRef"}


def test_every_container_is_restricted() -> None:
    for pod in pods():
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert "hostNetwork" not in pod
    for container in containers():
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= container["resources"].keys()
        assert "ports" not in container


def test_only_members_reach_members() -> None:
    (daemon,) = of_kind("StatefulSet")
    members: list[dict[str, Any]] = [
        {"ray.io/cluster": "symphony"},
        daemon["spec"]["template"]["metadata"]["labels"],
    ]
    policies = [policy["spec"] for policy in of_kind("NetworkPolicy")]
    assert [policy["podSelector"]["matchLabels"] for policy in policies] == members
    for policy in policies:
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        (allowed,) = policy["ingress"]
        assert [peer["podSelector"]["matchLabels"] for peer in allowed["from"]] == members
        assert not any("namespaceSelector" in peer for peer in allowed["from"])


def test_nodes_are_missed_as_soon_as_in_the_tests() -> None:
    health = {"period_ms": "1000", "timeout_ms": "3000", "failure_threshold": "3"}
    for group in groups():
        (container,) = group["template"]["spec"]["containers"]
        told = variables(container)
        assert {name: told[f"RAY_health_check_{name}"] for name in health} == health
