# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of nvidia_driver on a small Ubuntu. The real package managers: tests/integration/hosts."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _catalog
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._run import Outcome
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._types import Wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import MissingPynvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Finding
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented

from ..host_state.trees import gpu, grow
from .debian_host import GPUS, INITRD, NEW, OLD, SYSTEM, DebianHost, full, names
from .machine import KERNEL, said

PERSISTENCED = "nvidia-persistenced.service"


def files_of(host: DebianHost) -> dict[str, tuple[int, int]]:
    """Every file with inode and time: what writes one changes this."""
    found = {}
    for folder, _folders, files in os.walk(host.root):
        for name in files:
            path = os.path.join(folder, name)
            told = os.lstat(path)
            found[path] = (told.st_ino, told.st_mtime_ns)
    return found


def versions(host: DebianHost) -> set[str]:
    return {one.partition("-")[0] for name, one in host.installed.items() if "nvidia" in name and "pinning" not in name}


def verbs(outcome: Outcome) -> dict[str, str]:
    """What is done with packages."""
    return {action.target: action.verb for action in outcome.result.plan if action.id.startswith("package-")}


def exchanged(host: DebianHost) -> list[str]:
    """Transactions that installed or removed something."""
    return [one for one in host.writes() if one.startswith("apt-get install") and "--download-only" not in one]


def refused(host: DebianHost, **params: Any) -> dict[str, Finding]:
    """Findings of a run that is refused, which has to change nothing."""
    before = files_of(host), dict(host.installed), set(host.held)
    with pytest.raises(Failure) as failure:
        host.go(**params)
    assert host.writes() == []
    assert (files_of(host), host.installed, host.held) == before
    assert "nothing has been changed" in failure.value.msg.lower()
    return {one.id: one for one in failure.value.result.findings}


@pytest.mark.rows("S07", "H033", "H059")
def test_a_host_without_a_driver_gets_one_that_is_loaded_and_held(host: DebianHost) -> None:
    outcome = host.go(branch=580)
    assert undocumented("nvidia_driver", outcome.as_dict()) == []
    assert versions(host) == {NEW}
    assert (host.version, host.units[PERSISTENCED]) == (NEW, ["active", "enabled"])
    assert host.held == set(names(NEW))
    assert [check.ok for check in outcome.result.verified] == [True] * 7
    assert outcome.reboot == ()


@pytest.mark.rows("S07", "H037", "P035")
def test_check_mode_has_the_same_plan_and_changes_nothing(host: DebianHost) -> None:
    before = files_of(host)
    seen = host.go(check=True, branch=580)
    assert (host.writes(), files_of(host)) == ([], before)
    done = host.go(branch=580)
    assert [action.id for action in seen.result.plan] == [action.id for action in done.result.plan]
    assert seen.result.found == done.result.found
    assert seen.result.changed
    assert seen.result.verified == []


@pytest.mark.rows("H059", "P031", "P032")
def test_a_second_run_changes_nothing_though_there_is_a_newer_version(host: DebianHost) -> None:
    host.go(branch=580, version=OLD)
    host.ran.clear()
    before = files_of(host)
    outcome = host.go(branch=580)
    assert (host.writes(), files_of(host)) == ([], before)
    assert (outcome.result.changed, outcome.result.plan, outcome.reboot) == (False, [], ())
    assert versions(host) == {OLD}
    assert "apt-cache" not in " ".join(host.ran)  # not even the repository is asked


@pytest.mark.rows("H055", "H052", "H036")
def test_an_upgrade_downloads_first_and_exchanges_the_driver_in_place(host: DebianHost) -> None:
    host.have(OLD)
    outcome = host.go(version="latest")
    order = [
        next(number for number, one in enumerate(host.ran) if one.startswith(start) and end in one)
        for start, end in (
            ("apt-get install", "--download-only"), ("systemctl stop", PERSISTENCED), ("rmmod nvidia", "nvidia"),
            ("apt-get install", "--allow-change-held-packages -o"), ("apt-mark hold", "nvidia-utils-580"),
            ("modprobe nvidia", "nvidia"), ("systemctl start", PERSISTENCED),
        )
    ]  # fmt: skip
    assert order == sorted(order)
    assert (versions(host), host.version, host.masked) == ({NEW}, NEW, set())
    assert host.units[PERSISTENCED][0] == "active"
    assert {verbs(outcome)[name] for name in names(NEW)} == {"upgrade"}
    assert outcome.reboot == ()


@pytest.mark.rows("H035")
def test_an_older_version_is_installed_when_it_is_asked_for(host: DebianHost) -> None:
    host.go(version=NEW)
    outcome = host.go(version=OLD)
    assert (versions(host), host.version, host.held) == ({OLD}, OLD, set(names(OLD)))
    assert {verbs(outcome)[name] for name in names(OLD)} == {"downgrade"}


@pytest.mark.rows("S07")
def test_a_switch_of_flavour_is_one_transaction(host: DebianHost) -> None:
    host.offer(NEW, flavour="proprietary").go(version=NEW)
    host.ran.clear()
    outcome = host.go(flavour="proprietary")
    exchanges = exchanged(host)
    assert len(exchanges) == 1
    assert "nvidia-dkms-580-open-" in exchanges[0]
    assert "nvidia-dkms-580=580.95.05-0ubuntu1" in exchanges[0]
    assert verbs(outcome)["nvidia-dkms-580-open"] == "remove"
    assert "is loaded" in " ".join(check.detail for check in outcome.result.verified)
    assert host.go().result.changed is False  # what is there stays, though auto would take the open ones


@pytest.mark.rows("H015", "P028")
def test_crossing_590_removes_the_suffixed_packages_in_the_same_transaction(host: DebianHost) -> None:
    newer = "595.91.07"
    host.offer(newer).go(version=NEW)
    host.ran.clear()
    host.go(branch=595)
    exchanges = exchanged(host)
    assert [("pinning" in one, "nvidia-utils-580-" in one) for one in exchanges] == [(True, False), (False, True)]
    assert versions(host) == {newer}
    assert not [name for name in host.held if "580" in name]
    host.ran.clear()
    assert host.go(branch=595).result.changed is False
    assert host.writes() == []


@pytest.mark.rows("H011")
def test_the_package_that_keeps_a_version_is_exchanged_before_the_driver_and_comes_back(host: DebianHost) -> None:
    first, second = "595.71.05", "595.91.07"
    host.offer(first, second).go(version=first)
    host.ran.clear()
    host.go(version=second)
    exchanges = exchanged(host)
    assert f"nvidia-driver-pinning-{second}=1.0-1 nvidia-driver-pinning-{first}-" in exchanges[0]
    assert "pinning" not in exchanges[1]
    host.builds = False
    with pytest.raises(Failure, match=r"The old packages \(595.91.07\) are back"):
        host.go(version=first)
    assert [name for name in host.installed if "pinning" in name] == [f"nvidia-driver-pinning-{second}"]


@pytest.mark.rows("H036", "P038")
def test_a_mirror_that_lacks_a_package_is_seen_before_anything_is_touched(host: DebianHost) -> None:
    host.have(OLD)
    host.repository["nvidia-compute-utils-580"] = [full(OLD)]
    found = refused(host, version=NEW)
    assert "nvidia-compute-utils-580: not to be had in version 580.95.05" in found["not_in_repository"].detail
    del host.repository[f"linux-headers-{KERNEL}"], host.installed[f"linux-headers-{KERNEL}"]
    found = refused(host, version=OLD)
    assert f"linux-headers-{KERNEL}" in found["not_in_repository"].detail


@pytest.mark.rows("P039", "H009")
def test_a_kernel_that_nobody_has_built_modules_for_is_refused_with_the_other_way(host: DebianHost) -> None:
    """Never another source by itself: each host is told what it lacks."""
    wanted = Wanted(580, "", "open", "precompiled", "compute", ("persistenced",))
    for kernel in (KERNEL, "6.8.0-1036-nvidia-64k"):
        for one in _catalog.packages(replace(SYSTEM, kernel=kernel), wanted).packages:
            host.repository[one.name] = ["580.95.05-0ubuntu0.24.04.1"]
    planned = host.go(check=True, branch=580, source="precompiled")
    assert f"linux-modules-nvidia-580-server-open-{KERNEL}" in verbs(planned)
    other = "6.8.0-45-fips"
    host.put("/proc/sys/kernel/osrelease", f"{other}\n")
    found = refused(host, branch=580, source="precompiled")["not_in_repository"]
    assert f"linux-modules-nvidia-580-server-open-{other}" in found.detail
    assert "ask for a source that builds them on the host (distribution or nvidia)" in found.remedy


@pytest.mark.rows("H055", "H056")
def test_programs_on_the_gpus_stop_the_run_before_anything_is_touched(host: DebianHost) -> None:
    host.have(OLD).process(4711, "python3")
    host.load(nvidia_uvm=1)
    found = refused(host, version=NEW)
    assert "python3 (pid 4711)" in found["gpus_in_use"].detail
    assert found["gpus_in_use"].accept == "gpus_in_use"


@pytest.mark.rows("H056", "P029")
@pytest.mark.parametrize("how", [{"apply": "if_idle"}, {"accept": ["gpus_in_use"]}, {"apply": "next_boot"}])
def test_a_host_in_use_can_wait_for_its_next_boot(host: DebianHost, how: dict[str, Any]) -> None:
    host.have(OLD).process(4711, "python3")
    host.load(nvidia_uvm=1)
    outcome = host.go(version=NEW, **how)
    assert (versions(host), host.version) == ({NEW}, OLD)
    assert "Driver 580.82.07 is loaded, 580.95.05 is wanted." in outcome.reboot[0]
    assert host.units[PERSISTENCED][0] == "active"
    again = host.go(version=NEW, **how)
    assert (again.result.changed, bool(again.reboot)) == (False, True)


@pytest.mark.rows("S65", "H026", "P042")
def test_a_driver_of_nvidias_installer_is_refused_or_taken_over(host: DebianHost) -> None:
    host.put("/usr/bin/nvidia-uninstall", "")
    found = refused(host, branch=580)
    assert "NVIDIA's own installer" in found["runfile"].detail
    host.go(branch=580, accept=["runfile"])
    assert host.writes().index("nvidia-uninstall --silent") < host.writes().index(exchanged(host)[0])
    assert not (host.root / "usr/bin/nvidia-uninstall").exists()
    assert versions(host) == {NEW}


@pytest.mark.rows("H033")
def test_holds_of_others_are_respected_and_set_again(host: DebianHost) -> None:
    host.have(OLD)
    host.held = {"nvidia-utils-580"}
    host._status()
    found = refused(host, version=NEW)
    assert "nvidia-utils-580 at 580.82.07-0ubuntu1" in found["held"].detail
    host.go(version=NEW, accept=["held"], hold=False)
    assert (versions(host), host.held) == ({NEW}, {"nvidia-utils-580"})


@pytest.mark.rows("H014", "H040")
def test_a_module_that_dkms_did_not_build_puts_the_old_packages_back(host: DebianHost) -> None:
    host.go(version=OLD)
    host.builds = False
    (host.root / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko").write_bytes(host.module(version=OLD))
    with pytest.raises(Failure) as failure:
        host.go(version=NEW)
    assert "The old packages (580.82.07) are back." in failure.value.msg
    assert (versions(host), host.version, host.units[PERSISTENCED][0]) == ({OLD}, OLD, "active")
    assert host.held == set(names(OLD))


@pytest.mark.rows("H042", "H043", "P036")
def test_nouveau_is_kept_out_and_the_initramfs_made_anew_once(host: DebianHost) -> None:
    host.load(nouveau=0)
    host.put(f"/sys/bus/pci/devices/{GPUS[0]}/driver", "-> ../../drivers/nouveau")
    outcome = host.go(branch=580)
    assert "nouveau" not in host.modules
    assert "blacklist nouveau" in host.text("/etc/modprobe.d/gpufleet-nouveau.conf")
    assert (host.rebuilt, host.text(INITRD), outcome.reboot) == (1, "1", ())
    host.ran.clear()
    host.go(branch=580)
    assert host.writes() == []


@pytest.mark.rows("H049")
def test_parameters_are_written_and_the_modules_loaded_anew_for_them(host: DebianHost) -> None:
    host.go(branch=580)
    host.put("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    host.ran.clear()
    seen = host.go(check=True, parameters={"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0}})
    assert [action.id for action in seen.result.plan][:1] == ["file-gpufleet-nvidia.conf"]
    assert {"unload", "load"} <= {action.id for action in seen.result.plan}
    found = refused(host, parameters={"nvidia": {"NVreg_RestrictProfiling": 0}})
    assert "Did you mean NVreg_RestrictProfilingToAdminUsers?" in found["unknown_parameter"].remedy


@pytest.mark.rows("H060", "P030")
def test_absent_gives_the_host_back_whatever_version_is_pinned(host: DebianHost) -> None:
    before = {path: os.lstat(path).st_size for path in files_of(host)}
    host.load(nouveau=0)
    host.go(branch=580, version=NEW)
    outcome = host.go(state="absent", version=OLD)
    assert (host.version, host.held, host.modules) == ("", set(), {})
    assert list(host.installed) == [f"linux-headers-{KERNEL}"]
    now = {path: os.lstat(path).st_size for path in files_of(host)}
    changed = {path for path in {*before, *now} if before.get(path) != now.get(path)}
    assert {path.replace(str(host.root), "") for path in changed} <= {
        "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm", "/proc/modules", "/var/lib/dpkg/status",
    }  # fmt: skip
    assert {check.id: check.ok for check in outcome.result.verified}["packages.removed"]
    host.ran.clear()
    assert host.go(state="absent").result.plan == []
    assert host.writes() == []


@pytest.mark.rows("H060", "P030")
def test_what_came_with_the_driver_goes_with_it_unless_something_else_needs_it_now(host: DebianHost) -> None:
    host.repository.update({"dkms": ["3.0.10-8"], "libtirpc3": ["1.3.3-1"]})
    host.pulls = {"nvidia-dkms-580-open": ("dkms",), "nvidia-utils-580": ("libtirpc3",)}
    before = dict(host.installed)
    host.go(branch=580)
    assert {"dkms", "libtirpc3"} <= set(host.installed)
    host.go(state="absent")
    assert host.installed == before

    host.go(branch=580)
    host.installed["zfs-dkms"] = "2.1.11-1"
    host.needs = {"dkms": "zfs-dkms"}
    host.ran.clear()
    outcome = host.go(state="absent")
    assert host.installed == {**before, "dkms": "3.0.10-8", "zfs-dkms": "2.1.11-1"}
    told = {one.target: one.detail for one in outcome.result.findings if one.id == "package_stays"}
    assert told == {"dkms": "it came with the driver, and zfs-dkms needs it now"}
    assert ["--purge" in one for one in exchanged(host)] == [True]  # one transaction, and no configuration is left
    assert host.go(state="absent").result.plan == []


@pytest.mark.rows("H056")
def test_services_that_need_the_new_modules_wait_for_the_boot_that_loads_them(host: DebianHost) -> None:
    outcome = host.go(branch=580, apply="next_boot")
    assert host.units[PERSISTENCED] == ["inactive", "enabled"]
    assert [one.verb for one in outcome.result.plan if one.target == PERSISTENCED] == ["enable"]
    assert [check for check in outcome.result.verified if not check.ok] == []
    again = host.go(branch=580, apply="next_boot")
    assert (again.result.changed, again.result.plan, bool(again.reboot)) == (False, [], True)


@pytest.mark.rows("H060")
def test_a_file_that_somebody_else_changed_stays_and_is_told(host: DebianHost) -> None:
    host.load(nouveau=0)
    host.go(branch=580)
    host.put("/etc/modprobe.d/gpufleet-nouveau.conf", "blacklist nouveau  # by hand\n")
    outcome = host.go(state="absent")
    assert [one.target for one in outcome.result.findings if one.id == "left_alone"] == [
        "/etc/modprobe.d/gpufleet-nouveau.conf"
    ]
    assert "by hand" in host.text("/etc/modprobe.d/gpufleet-nouveau.conf")
    assert not (host.root / "var/lib/gpufleet").exists()
    assert host.go(state="absent").result.plan == []


@pytest.mark.rows("H060")
def test_modules_that_do_not_go_keep_the_driver_and_its_services(host: DebianHost) -> None:
    host.go(branch=580)
    host.answers["rmmod nvidia_uvm"] = said(rc=1, err="rmmod: ERROR: Module nvidia_uvm is in use\n")
    with pytest.raises(Failure, match=r"Nothing has been removed\."):
        host.go(state="absent")
    assert (versions(host), host.units[PERSISTENCED][0]) == ({NEW}, "active")


def test_a_first_installation_needs_no_pynvml(host: DebianHost) -> None:
    host.nvml = MissingPynvml("pynvml is not there")
    assert host.go(branch=580).result.changed
    host.ran.clear()
    found = refused(host, version=OLD)
    assert "The settings of the GPUs cannot be saved" in found["settings_lost"].detail
    with pytest.raises(Failure, match="pynvml is not there"):
        host.go(check=True, version=OLD)
    assert (versions(host), host.version) == ({NEW}, NEW)
    assert host.go(version=OLD, apply="next_boot").reboot


@pytest.mark.rows("H060")
def test_a_driver_that_was_there_before_stays_and_is_told(host: DebianHost) -> None:
    host.have(OLD)
    host.go(version=NEW)
    outcome = host.go(state="absent")
    assert (versions(host), host.held, host.version) == ({NEW}, set(), NEW)
    told = {one.id: one.detail for one in outcome.result.findings}["driver_stays"]
    assert "8 packages of the driver were there before this module came, and stay (8 of them in" in told
    gone = host.go(state="absent", accept=["not_ours"])
    assert not [name for name in host.installed if "nvidia" in name]
    assert gone.result.changed


@pytest.mark.rows("H010", "H036")
def test_dependencies_come_in_the_version_of_the_driver_not_in_the_newest(host: DebianHost) -> None:
    host.repository["libnvidia-gpucomp-580"] = [full(NEW), full(OLD)]
    host.repository["libnvidia-common-580"] = [full(NEW)]  # only that there is
    host.pulls = {"nvidia-utils-580": ("libnvidia-gpucomp-580", "libnvidia-common-580")}
    host.go(version=OLD)
    assert host.installed["libnvidia-gpucomp-580"] == full(OLD)
    assert "libnvidia-gpucomp-580" in host.held
    host.go(state="absent")
    assert "libnvidia-gpucomp-580" not in host.installed


@pytest.mark.rows("H012", "P045")
def test_a_mirror_is_asked_before_it_is_set_up(host: DebianHost) -> None:
    mirror = {"url": "https://mirror.example.com/cuda"}
    host.mirror = {name: host.repository.pop(name) for name in names(NEW)}
    found = refused(host, branch=580, repository=mirror)
    assert found["repository_key"].accept == "unsigned_repository"
    outcome = host.go(branch=580, repository=mirror, accept=["unsigned_repository"])
    assert [action.target for action in outcome.result.plan if action.id.startswith("repository-")]
    assert "https://mirror.example.com/cuda/ubuntu2404/x86_64/" in host.text(
        "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"
    )
    host.ran.clear()
    assert host.go(branch=580, repository=mirror, accept=["unsigned_repository"]).result.changed is False
    assert host.writes() == []


@pytest.mark.rows("S34", "H027", "P043")
def test_a_fabric_manager_of_the_same_version_runs_where_there_are_nvswitches(host: DebianHost) -> None:
    grow(host.root, gpu("0000:05:00.0", "0x22a3", pci_class="0x068000"))
    host.offer(NEW, companions=("persistenced", "fabric_manager", "nscq"))
    host.answers["/usr/bin/nvidia-smi -q -x"] = said(
        "<fabric><state>Completed</state><status>Success</status></fabric>" * 2
    )
    outcome = host.go(version=NEW)
    manager = next(name for name in host.installed if name.startswith("nvidia-fabricmanager"))
    assert host.installed[manager].startswith(NEW)
    assert manager in host.held
    assert host.units["nvidia-fabricmanager.service"] == ["active", "enabled"]
    assert {check.id: check.ok for check in outcome.result.verified}["driver.fabric"]


@pytest.mark.rows("S33", "H031")
def test_peermem_is_loaded_where_adapters_are_and_refused_without(host: DebianHost) -> None:
    asked = {"branch": 580, "companions": ["persistenced", "peermem"]}
    assert "needs ib_core" in refused(host, **asked)["no_peermem"].detail
    host.load(ib_core=0)
    host.go(**asked)
    assert {"nvidia", "nvidia_peermem"} <= set(host.modules)
    assert "nvidia-peermem" in host.text("/etc/modules-load.d/gpufleet-nvidia.conf")
    assert host.go(**asked).result.changed is False


@pytest.mark.parametrize("options", [{}, {"accept": ["runfile"]}])
def test_a_package_that_the_driver_would_push_out_is_seen_before_anything_is_touched(
    host: DebianHost, options: dict[str, Any]
) -> None:
    host.have(OLD)
    if options:
        host.put("/usr/bin/nvidia-uninstall", "")
    host.installed["libfoo-cuda"] = "1.0-1"
    host.pushes = ("libfoo-cuda",)
    found = refused(host, version=NEW, **options)
    assert "libfoo-cuda would be removed too" in found["removes_others"].detail
    with pytest.raises(Failure):
        host.go(check=True, version=NEW, **options)


def test_so_is_one_that_only_the_new_repository_would_push_out(host: DebianHost) -> None:
    host.have(OLD)
    host.installed["libfoo-cuda"] = "1.0-1"
    host.pushes = ("libfoo-cuda",)
    mirror = {"repository": {"url": "https://mirror.example.com/cuda"}, "accept": ["unsigned_repository"]}
    with pytest.raises(Failure, match=r"libfoo-cuda would be removed too.* The driver has not been touched\."):
        host.go(version=NEW, **mirror)
    assert (versions(host), host.version) == ({OLD}, OLD)
    assert not [one for one in host.writes() if one.startswith(("systemctl", "rmmod", "apt-get install"))]


def test_what_the_package_manager_cannot_do_ends_the_run_before_the_driver_is_touched(host: DebianHost) -> None:
    host.have(OLD).simulates = False
    with pytest.raises(Failure, match=r"not installable.* The driver has not been touched\."):
        host.go(version=NEW)
    assert (versions(host), host.version) == ({OLD}, OLD)
    assert not [one for one in host.writes() if one.startswith(("systemctl", "rmmod", "apt-get install"))]


def test_a_driver_of_the_installer_that_is_gone_or_half_gone_is_told(host: DebianHost) -> None:
    host.put("/usr/bin/nvidia-uninstall", "")
    host.answers["nvidia-uninstall"] = said(rc=1, err="no space\n")
    with pytest.raises(Failure) as failure:
        host.go(branch=580, accept=["runfile"])
    assert "No package has been exchanged. The driver of NVIDIA's installer may be removed in part" in failure.value.msg
    assert "gone again" not in failure.value.msg
    del host.answers["nvidia-uninstall"]
    host.dies_after = 3
    with pytest.raises(Failure, match="The driver of NVIDIA's installer is removed, and is not put back"):
        host.go(branch=580, accept=["runfile"])


@pytest.mark.rows("H011")
def test_a_download_that_fails_puts_pinning_and_holds_back_and_tells_what_stays(host: DebianHost) -> None:
    first, second = "595.71.05", "595.91.07"
    host.offer(first, second).go(version=first)
    host.held.add(f"nvidia-driver-pinning-{first}")  # somebody's
    host._status()
    before = dict(host.installed), set(host.held)
    download = host._run_apt_get

    def fails(words: list[str]) -> Done:
        return said(rc=100, err="E: 404 Not Found\n") if "--download-only" in words else download(words)

    host._run_apt_get = fails  # type: ignore[method-assign]
    del host.installed[f"linux-headers-{KERNEL}"]
    with pytest.raises(Failure, match="404 Not Found") as failure:
        host.go(version=second, accept=["held"])
    assert (host.installed, host.held) == before
    assert "The driver has not been touched." in failure.value.msg
    assert f"These stay, and the next run needs them: linux-headers-{KERNEL}." in failure.value.msg
    assert f"package-nvidia-driver-pinning-{second}" in failure.value.remaining
    host._run_apt_get = download  # type: ignore[method-assign]
    host.go(version=second, accept=["held"])
    assert versions(host) == {second}


@pytest.mark.rows("H042", "H055")
def test_what_fails_takes_its_files_back_and_loads_the_other_driver_again(host: DebianHost) -> None:
    host.load(nouveau=0)
    host.put(f"/sys/bus/pci/devices/{GPUS[0]}/driver", "-> ../../drivers/nouveau")
    host.put("/etc/modprobe.d/gpufleet-nvidia.conf", "# by hand\n")
    host.dies_after = 3
    asked: dict[str, Any] = {"branch": 580, "parameters": {"nvidia": {"NVreg_RestrictProfilingToAdminUsers": 0}}}
    with pytest.raises(Failure) as failure:
        host.go(**asked)
    assert {"file-gpufleet-nvidia.conf", "file-gpufleet-nouveau.conf"} <= set(failure.value.remaining)
    assert host.text("/etc/modprobe.d/gpufleet-nvidia.conf") == "# by hand\n"
    assert not (host.root / "etc/modprobe.d/gpufleet-nouveau.conf").exists()
    assert "modprobe nouveau" in host.ran
    host.dies_after = -1
    host.go(**asked)
    assert (versions(host), host.rebuilt, "nouveau" in host.modules) == ({NEW}, 1, False)


@pytest.mark.rows("H060")
def test_absent_does_not_silently_lose_a_driver_whose_packages_were_replaced(host: DebianHost) -> None:
    newer = "595.91.07"
    host.offer(newer).have(OLD)
    host.held = {"nvidia-utils-580"}
    host._status()
    host.go(branch=595, accept=["held"])
    host.ran.clear()
    found = refused(host, state="absent")
    assert f"libnvidia-cfg1-580 {full(OLD)}" in found["driver_not_back"].detail
    assert "somebody's hold of nvidia-utils-580" in found["driver_not_back"].detail
    outcome = host.go(state="absent", accept=["not_ours"])
    assert {one.id: one.severity for one in outcome.result.findings}["driver_not_back"] == "warning"
    assert versions(host) == set()


@pytest.mark.rows("H049")
@pytest.mark.parametrize("values", [None, 5, ["a"], {"NVreg_EnableMSI": None}, {"NVreg_RmMsg": "1\\"}])
def test_parameters_that_no_file_can_hold_are_refused_before_the_first_look(host: DebianHost, values: Any) -> None:
    found = refused(host, branch=580, parameters={"nvidia": values})
    assert list(found) == ["wrong_parameter"]
    assert host.ran == []
