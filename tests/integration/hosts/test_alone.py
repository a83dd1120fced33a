# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Day two of hosts by SSH alone: upgrade of the driver, MIG change and removal, without any cluster to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.alone import Controller
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository

pytestmark = pytest.mark.hosts

SHARED = "/srv/repositories"
OLD, NEW = "580.95.05", "580.178.04"
OFF = {"enabled": False}
ROLE = """
- hosts: gpu_hosts
  gather_facts: false
  roles:
    - role: gpufleet.nvidia.{}
"""


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    made = Controller(tmp_path)
    made.without_cluster()
    return made


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    """A host with two GPUs in sysfs, the headers of a kernel, and a repository with two versions of the driver."""
    folder = tmp_path_factory.mktemp("repositories")
    key = repository.Key(folder)
    (folder / "key.asc").write_text(key.text)
    repository.apt(debs.nvidia_debian((OLD, NEW)), folder / "debian12/x86_64", key)
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        host = hosts.start("gpu-1", "debian12-drivers", "--volume", f"{folder}:{SHARED}:ro")
        gpus.install_pci(host, "2330", "2330")
        yield hosts, host
    key.close()


def installed(host: Host) -> set[str]:
    """Versions of the driver's packages, by dpkg's own words."""
    form = r"${Version} ${Status}\n"
    said = host.run(["dpkg-query", "-W", "-f", form, "nvidia-driver-cuda", "libcuda1"], check=False).stdout
    return {line.split("-")[0] for line in said.splitlines() if line.endswith(" installed")}


@pytest.mark.rows("S41")
def test_the_driver_is_upgraded_and_removed_without_a_cluster(
    driver: tuple[Hosts, Host], controller: Controller, tmp_path: Path
) -> None:
    hosts, host = driver
    playbook = tmp_path / "driver.yml"
    playbook.write_text(ROLE.format("nvidia_driver"))
    common = {
        "nvidia_driver_source": "nvidia",
        "nvidia_driver_repository": {"url": f"file://{SHARED}", "key_file": f"{SHARED}/key.asc"},
        "nvidia_driver_kernel": host.run("ls /lib/modules").stdout.split()[0],
        "nvidia_driver_apply": "next_boot",  # the kernel that runs is the machine's
    }
    for version in (OLD, NEW):
        controller.play(hosts.inventory(), playbook, **common, nvidia_driver_version=version)
        assert installed(host) == {version}
    controller.play(hosts.inventory(), playbook, **common, nvidia_driver_state="absent")
    assert installed(host) == set()


@pytest.mark.rows("S41")
def test_a_layout_is_changed_and_removed_without_a_cluster(
    tmp_path_factory: pytest.TempPathFactory, controller: Controller, tmp_path: Path
) -> None:
    playbook = tmp_path / "mig.yml"
    playbook.write_text(ROLE.format("mig_partition"))
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        host = hosts.start("gpu-2", "debian13")
        gpus.install(host, "--product", "A30", "--count", "1")
        for layout, instances in (({"profiles": {"1g.6gb": 4}}, 4), ({"profiles": {"2g.12gb": 2}}, 2), (OFF, 0)):
            asked = {"gpufleet_components": ["mig"], "mig_partition_layout": [layout]}
            controller.play(hosts.inventory(), "playbooks/hosts.yml", **asked)
            assert len(gpus.show(host)["gpus"][0]["instances"]) == instances
        assert host.run("ls /var/lib/gpufleet").stdout
        controller.play(hosts.inventory(), playbook, mig_partition_state="absent")
        assert host.run("ls /var/lib/gpufleet", check=False).stdout == ""
