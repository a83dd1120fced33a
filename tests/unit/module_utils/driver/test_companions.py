# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Companions of the driver on a host: their files, modules and units, and what state: absent gives back of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._acts import boot_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import unwatched
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from ..host_state.trees import grow
from .debian_host import NEW, OLD, DebianHost, Killed
from .machine import said
from .test_run import PERSISTENCED, refused

IMEX, NODES = "nvidia-imex.service", "/etc/nvidia-imex/nodes_config.cfg"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
AT_BOOT = "/etc/modules-load.d/gpufleet-nvidia.conf"
ASKED = {"branch": 580, "companions": ["persistenced", "imex"]}
HOSTS = ["192.0.2.7", "2001:db8::8"]


@pytest.fixture
def domain(host: DebianHost) -> DebianHost:
    """A host with the hosts of its NVLink domain, and IMEX that runs."""
    host.offer(OLD, NEW, companions=("persistenced", "imex"))
    host.go(**ASKED, imex_nodes=HOSTS)
    host.ran.clear()
    return host


def restarts(host: DebianHost) -> list[str]:
    return [one for one in host.ran if one.startswith("systemctl restart")]


@pytest.mark.rows("H028")
def test_imex_starts_with_the_hosts_of_its_domain(domain: DebianHost) -> None:
    assert domain.text(NODES) == "192.0.2.7\n2001:db8::8\n"
    assert domain.units[IMEX] == ["active", "enabled"]
    assert domain.installed["nvidia-imex"].startswith(NEW)
    again = domain.go(**ASKED, imex_nodes=HOSTS)
    assert (again.result.changed, domain.writes()) == (False, [])
    assert not domain.go(**ASKED).result.changed  # without them the file is left alone


@pytest.mark.rows("H028")
def test_another_host_of_the_domain_starts_imex_anew_and_nothing_else(domain: DebianHost) -> None:
    planned = domain.go(check=True, **ASKED, imex_nodes=HOSTS[:1]).result.plan
    assert [(one.verb, one.target) for one in planned] == [("update", NODES), ("restart", IMEX)]
    assert domain.writes() == []
    done = domain.go(**ASKED, imex_nodes=HOSTS[:1])
    assert [one.id for one in done.result.plan] == [one.id for one in planned]
    assert domain.writes() == ["systemctl daemon-reload", f"systemctl restart -- {IMEX}"]
    assert domain.text(NODES) == "192.0.2.7\n"


@pytest.mark.rows("H028")
def test_a_run_that_dies_before_imex_starts_anew_is_ended_by_the_next(domain: DebianHost) -> None:
    def watch(moment: str, what: str) -> None:
        if moment == "before" and what.startswith("systemctl restart"):
            raise Killed

    domain.watch = watch
    with pytest.raises(Killed):
        domain.go(**ASKED, imex_nodes=HOSTS[:1])
    domain.watch = unwatched
    domain.ran.clear()
    assert [one.id for one in domain.go(**ASKED, imex_nodes=HOSTS[:1]).result.plan] == [f"restart-{IMEX}"]
    assert len(restarts(domain)) == 1
    assert not domain.go(**ASKED, imex_nodes=HOSTS[:1]).result.changed


@pytest.mark.rows("H028")
def test_imex_that_waits_for_the_boot_is_not_told_to_have_started_anew(domain: DebianHost) -> None:
    domain.put(BOOT_ID, "first\n")
    waiting = {**ASKED, "version": OLD, "apply": "next_boot"}
    done = domain.go(**waiting, imex_nodes=HOSTS[:1])
    assert domain.text(NODES) == "192.0.2.7\n"
    assert ([one.id for one in done.result.plan if one.verb == "restart"], restarts(domain)) == ([], [])
    assert not domain.go(**waiting, imex_nodes=HOSTS[:1]).result.changed
    # Nobody booted it, and the driver that runs is wanted again.
    domain.go(**ASKED, version=NEW, imex_nodes=HOSTS[:1])
    assert len(restarts(domain)) == 1


def test_the_boot_is_read_where_the_kernel_tells_it() -> None:
    assert boot_of(Files(Root("/"))) == Path(BOOT_ID).read_text().strip()  # which refuses to be read at once as a file


@pytest.mark.rows("H028")
@pytest.mark.parametrize("boot", ["first", "second"])
def test_imex_starts_anew_in_the_next_run_where_no_boot_has_done_it(domain: DebianHost, boot: str) -> None:
    def watch(moment: str, what: str) -> None:
        if moment == "before" and what.startswith("systemctl restart"):
            raise Killed

    domain.put(BOOT_ID, "first\n")
    domain.watch = watch
    with pytest.raises(Killed):
        domain.go(**ASKED, imex_nodes=HOSTS[:1])
    domain.watch = unwatched
    domain.put(BOOT_ID, f"{boot}\n")
    domain.ran.clear()
    assert domain.go(**ASKED, imex_nodes=HOSTS[:1]).result.changed is (boot == "first")
    assert len(restarts(domain)) == (boot == "first")


@pytest.mark.rows("H028")
def test_the_file_of_somebody_else_comes_back_with_imex_that_was_there_before(host: DebianHost) -> None:
    host.offer(NEW, companions=("persistenced", "imex")).have(NEW, companions=("persistenced", "imex"))
    host.put(NODES, "198.51.100.1\n")
    host.units[IMEX] = ["active", "enabled"]
    host.go(**ASKED, imex_nodes=HOSTS)
    host.ran.clear()
    outcome = host.go(state="absent")
    assert host.text(NODES) == "198.51.100.1\n"
    assert len(restarts(host)) == 1
    assert f"restart-{IMEX}" in {one.id for one in outcome.result.plan}
    assert host.units[IMEX] == ["active", "enabled"]


@pytest.mark.rows("H028", "H060")
def test_what_came_with_imex_goes_with_it(domain: DebianHost) -> None:
    domain.go(state="absent")
    assert not (domain.root / NODES[1:]).parent.exists()
    assert (IMEX in domain.units, restarts(domain)) == (False, [])


@pytest.mark.rows("H028")
@pytest.mark.parametrize(
    ("options", "path", "words"),
    [
        ({**ASKED, "imex_nodes": ["192.0.2.7", "gpu-07"]}, "imex_nodes[1]", "'gpu-07' is no address"),
        ({**ASKED, "imex_nodes": ["192.0.2.7", "192.0.2.7"]}, "imex_nodes[1]", "192.0.2.7 is there twice"),
        ({"branch": 580, "imex_nodes": HOSTS}, "imex_nodes", "imex is not among the companions"),
    ],
)
def test_hosts_of_a_domain_that_cannot_be_are_refused(host: DebianHost, options: dict, path: str, words: str) -> None:
    host.offer(NEW, companions=("persistenced", "imex"))
    (found,) = [one for one in refused(host, **options).values() if one.path == path]
    assert found.id in ("imex_node", "imex_nodes")
    assert words in found.detail


@pytest.mark.rows("H028")
def test_imex_without_hosts_is_told(host: DebianHost) -> None:
    host.offer(NEW, companions=("persistenced", "imex"))
    told = {one.id: one for one in host.go(check=True, **ASKED).result.findings}["imex_nodes"]
    assert (told.severity, "names no host" in told.detail) == ("warning", True)


# --- Modules ----------------------------------------------------------------------------------------------------------

BESIDE = [
    pytest.param("gds", "nvidia_fs", marks=pytest.mark.rows("H032", "S33")),
    pytest.param("gdrcopy", "gdrdrv", marks=pytest.mark.rows("H032", "S33")),
    pytest.param("nvlsm", "ib_umad", marks=pytest.mark.rows("H029")),
]


@pytest.mark.parametrize(("companion", "module"), BESIDE)
def test_modules_of_companions_are_loaded_now_and_at_boot(host: DebianHost, companion: str, module: str) -> None:
    asked = {"branch": 580, "companions": ["persistenced", companion]}
    host.offer(NEW, companions=("persistenced", companion)).go(branch=580)
    host.ran.clear()
    outcome = host.go(**asked)
    assert ("load", module) in [(one.verb, one.target) for one in outcome.result.plan]
    assert module in host.modules
    assert module in host.text(AT_BOOT).replace("-", "_").split()
    assert not [one for one in host.writes() if one.startswith("rmmod")]  # the driver itself works on
    assert not host.go(**asked).result.changed
    host.go(state="absent")
    assert not (host.root / AT_BOOT[1:]).exists()


@pytest.mark.rows("H032")
def test_a_companion_whose_module_does_not_load_is_told_and_the_driver_stays(host: DebianHost) -> None:
    host.offer(NEW, companions=("persistenced", "gdrcopy"))
    host.answers["modprobe gdrdrv"] = said(rc=1, err="modprobe: FATAL: Module gdrdrv not found\n")
    with pytest.raises(Failure, match=r"The kernel module gdrdrv could not be loaded: .*not found"):
        host.go(branch=580, companions=["persistenced", "gdrcopy"])
    assert host.version == NEW


@pytest.mark.rows("H029", "H003")
def test_nvlink_5_brings_the_subnet_manager_with_its_tools(host: DebianHost) -> None:
    vpd = b"\x82\x10\0ConnectX-7\x90\x2e\0PN\x05ABC\0\xffSW_MNG\0"
    device = "/sys/class/infiniband/mlx5_4/device"
    grow(host.root, {f"{device}/vpd": vpd, f"{device}/vendor": "0x15b3\n", f"{device}/driver": "-> ../mlx5_core"})
    host.offer(NEW, companions=("persistenced", "fabric_manager", "nvlsm", "nvsdm"))
    planned = {one.target for one in host.go(check=True, branch=580).result.plan}
    assert {"nvlsm", "infiniband-diags", "libnvsdm", "nvidia-fabricmanager", "ib_umad"} <= planned
    assert "libnvidia-nscq" not in planned


# --- Units ------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("H060")
def test_a_unit_that_was_off_before_is_off_again(host: DebianHost) -> None:
    host.have(NEW)
    host.units[PERSISTENCED] = ["inactive", "disabled"]
    host.go(branch=580)
    assert host.units[PERSISTENCED] == ["active", "enabled"]
    outcome = host.go(state="absent")
    assert host.units[PERSISTENCED] == ["inactive", "disabled"]
    assert [(one.verb, one.target) for one in outcome.result.plan if one.id.startswith("unit-")] == [
        ("disable", PERSISTENCED), ("stop", PERSISTENCED),
    ]  # fmt: skip
    assert host.go(state="absent").result.plan == []


@pytest.mark.rows("H060")
def test_a_unit_that_ran_before_runs_on(host: DebianHost) -> None:
    host.have(OLD)
    host.go(version=NEW)
    host.ran.clear()
    host.go(state="absent")
    assert host.units[PERSISTENCED] == ["active", "enabled"]
    assert not [one for one in host.writes() if one.startswith("systemctl")]
