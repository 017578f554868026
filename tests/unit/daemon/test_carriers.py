"""Which carrier the settings choose, what is no carrier, and which machines are visited."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from symphony.config import CarrierSettings, RaySettings, SshSettings, WorkerSettings
from symphony.daemon.carriers import CARRIERS, Carrier, CarrierContext, checked_class, choose_carrier
from symphony.domain import Category, SymphonyError
from symphony.processes.local import LocalHost


def test_the_settings_choose_the_carrier_its_section_and_what_the_scheduler_counts() -> None:
    assert CARRIERS.names == ("ray", "ssh")
    assert choose_carrier(WorkerSettings()) is None
    ssh = choose_carrier(WorkerSettings(ssh_hosts=("a", "b"), ssh=SshSettings(lease_ms=7)))
    assert ssh is not None
    assert (ssh.kind, ssh.hosts, ssh.names, ssh.settings.lease_ms) == ("ssh", ("a", "b"), ("a", "b"), 7)
    ray = choose_carrier(WorkerSettings(ray=RaySettings(address="head:6379")))
    assert ray is not None
    assert (ray.kind, ray.hosts, ray.names) == ("ray", ("ray",), ())
    assert ray.carrier.is_cluster


def test_a_change_of_the_way_is_another_carrier_and_a_change_of_slots_is_none() -> None:
    first = choose_carrier(WorkerSettings(ssh_hosts=("a",)))
    assert choose_carrier(WorkerSettings(ssh_hosts=("a",), max_concurrent_agents_per_host=3)) == first
    assert choose_carrier(WorkerSettings(ssh_hosts=("a", "b"))) != first
    assert choose_carrier(WorkerSettings(ssh_hosts=("a",), ssh=SshSettings(lease_ms=7))) != first


def test_a_carrier_that_no_package_offers_is_told() -> None:
    with pytest.raises(SymphonyError) as refused:
        choose_carrier(WorkerSettings(carrier="shh"))
    assert refused.value.failure.category is Category.INVALID_WORKFLOW_CONFIG
    assert not refused.value.failure.retryable
    assert "ray, ssh" in (refused.value.failure.hint or "")


class NoHost(Carrier[Any]):
    settings_type: ClassVar[type[Any]] = CarrierSettings


class NoDefault(CarrierSettings):
    key: str


class Needs(NoHost):
    settings_type = NoDefault
    is_cluster = True


class NoSection(NoHost):
    settings_type = dict


@pytest.mark.parametrize("found", [NoHost, Needs, NoSection, object, 7, None])
def test_what_is_no_carrier(found: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        checked_class(found)


@pytest.mark.parametrize("inherits", ["", "MINE|THEIRS_\\w+"])
def test_clients_get_the_variables_that_they_need_and_no_credential(inherits: str) -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "TRACKER_TOKEN": "t",
        "MINE": "1",
        "THEIRS_1": "2",
    }
    made: Any = type("Own", (NoHost,), {"inherits": inherits})
    context = CarrierContext(local=LocalHost(), environment=given, state_dir=Path("/s"), log=Path("/s/log"))
    env = made(CarrierSettings(), ("a",), context).env
    assert env == {
        name: given[name] for name in ("PATH", "HOME", *(("MINE", "THEIRS_1") if inherits else ()))
    }
