# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every finding of the preflight, provoked; errors stop the run before anything is written."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _found
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._run import Tools, nvidia_driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._accept import ACCEPTABLE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Finding
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

from ..host_state import trees
from .debian_host import GPUS, NEW, OLD, PARAMS, DebianHost
from .machine import KERNEL, said
from .test_run import files_of, refused

FIRST, SECOND = (f"/sys/bus/pci/devices/{bus}" for bus in GPUS)
SECURE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
Prepare = Callable[[DebianHost], object]


def device(host: DebianHost, *devices: str) -> None:
    """Have other GPUs."""
    for number, one in enumerate(devices):
        host.put(f"{(FIRST, SECOND)[number]}/device", f"{one}\n")


def no_gpu(host: DebianHost) -> None:
    shutil.rmtree(host.root / "sys/bus")
    (host.root / "sys/bus/pci/devices").mkdir(parents=True)


def switch(host: DebianHost) -> None:
    trees.grow(host.root, trees.gpu("0000:05:00.0", "0x22a3", pci_class="0x068000"))


def archive(host: DebianHost) -> None:
    host.installed["nvidia-utils-580-server"] = "580.82.07-0ubuntu0.24.04.1"
    host._status()


def system(host: DebianHost, text: str) -> None:
    host.put("/etc/os-release", text)


def dnf5(host: DebianHost) -> None:
    system(host, "ID=fedora\nVERSION_ID=43\n")
    host.put("/usr/bin/dnf", "-> dnf5")


def old_gcc(host: DebianHost) -> None:
    host.put(f"/boot/config-{KERNEL}", 'CONFIG_CC_VERSION_TEXT="gcc (Ubuntu 13.2.0) 13.2.0"\n')
    host.answers["gcc"] = said("gcc (Ubuntu 12.3.0) 12.3.0\n")
    host.answers["gcc-13"] = said(rc=127)


def uneven_fabric(host: DebianHost) -> None:
    """A fabric manager of another version than the driver's."""
    switch(host)
    host.offer(OLD, NEW, companions=("persistenced", "fabric_manager", "nscq")).have(OLD)
    host.installed["nvidia-fabricmanager"] = f"{NEW}-0ubuntu1"
    host._status()


def translated(host: DebianHost) -> None:
    host.offer(NEW, companions=("persistenced", "gds"))
    host.put(f"{FIRST}/iommu_group", "-> ../../../kernel/iommu_groups/7")


#: Finding -> how a host comes to it, options, and part of what it says.
ERRORS: dict[str, tuple[Prepare, dict[str, Any], str]] = {
    "no_gpu": (no_gpu, {"branch": 580}, "no NVIDIA GPU"),
    "unknown_gpu": (lambda host: device(host, "0x1801", "0x1801"), {"branch": 580}, "10de:1801"),
    "gpus_do_not_mix": (lambda host: device(host, "0x1db4", "0x2901"), {}, "V100"),
    "passed_through": (lambda host: host.put(f"{FIRST}/driver", "-> ../../drivers/vfio-pci"), {}, "vfio-pci"),
    "vgpu": (lambda host: host.load(nvidia=0, nvidia_vgpu_vfio=1), {}, "virtual machines"),
    "no_bar": (lambda host: host.put(f"{FIRST}/resource", "0x0 0x0 0x0\n0x0 0x0 0x0\n"), {}, "no addresses"),
    "no_fabric": (lambda host: None, {"companions": ["fabric_manager"]}, "no NVSwitch"),
    "fabric_missing": (switch, {"companions": ["persistenced"]}, "NVSwitches"),
    "immutable_system": (lambda host: system(host, "ID=flatcar\n"), {}, "image"),
    "unknown_system": (lambda host: system(host, "ID=arch\n"), {}, "none that packages"),
    "dnf5": (dnf5, {}, "is dnf 5"),
    "vendor_image": (lambda host: host.put("/etc/dgx-release", "x"), {}, "DGX OS"),
    "runfile": (lambda host: host.put("/usr/bin/nvidia-uninstall", ""), {}, "own installer"),
    "driver_of_image": (lambda host: trees.grow(host.root, trees.loaded(OLD)), {}, "no package of this host"),
    "managed_by_operator": (lambda host: host.put("/run/nvidia/driver/usr/x", ""), {}, "driver container"),
    "foreign_origin": (archive, {"source": "nvidia"}, "nvidia-utils-580-server"),
    "secure_boot": (lambda host: host.put(SECURE, b"\6\0\0\0\1"), {}, "Secure Boot is on"),
    "compiler": (old_gcc, {}, "gcc 13"),
    "no_such_kernel": (lambda host: None, {"kernel": "6.8.0-99-generic"}, KERNEL),
    "flavour_does_not_fit": (lambda host: device(host, "0x1db4", "0x1db4"), {"flavour": "open"}, "volta"),
    "gpu_too_old": (lambda host: device(host, "0x1db4", "0x1db4"), {"branch": 595}, "volta"),
    "branch_unknown": (lambda host: None, {"branch": 999}, "580"),
    "not_in_repository": (lambda host: None, {"version": "580.65.06"}, "580.95.05"),
    "source_not_here": (lambda host: system(host, 'ID=debian\nVERSION_ID="12"\n'), {"source": "precompiled"}, "debian"),
}  # fmt: skip


@pytest.mark.rows("S07", "H037", "H038", "H039", "H041", "H044")
@pytest.mark.parametrize("name", list(ERRORS))
def test_what_speaks_against_a_driver_is_found_before_anything_is_written(host: DebianHost, name: str) -> None:
    prepare, options, words = ERRORS[name]
    prepare(host)
    before = files_of(host)
    with pytest.raises(Failure) as failure:
        host.go(**options)
    found = {one.id: one for one in failure.value.result.findings}
    assert (host.writes(), files_of(host)) == ([], before)
    assert found[name].severity == "error"
    assert words in found[name].detail
    assert found[name].remedy
    assert found[name].accept in ("", name)


def seen(host: DebianHost, **options: Any) -> dict[str, Finding]:
    return {one.id: one for one in host.go(check=True, **{"branch": 580, **options}).result.findings}


@pytest.mark.rows("H038", "H041")
@pytest.mark.parametrize(
    "name", ["driver_of_image", "passed_through", "no_bar", "vendor_image", "foreign_origin", "compiler"]
)
def test_what_is_accepted_is_a_warning(host: DebianHost, name: str) -> None:
    prepare, options, _words = ERRORS[name]
    prepare(host)
    assert seen(host, **options, accept=[name])[name].severity == "warning"


def test_without_a_gpu_the_driver_is_installed_for_an_image_and_not_loaded(host: DebianHost) -> None:
    no_gpu(host)
    outcome = host.go(branch=580, accept=["no_gpu"])
    assert (host.version, host.modules, outcome.reboot) == ("", {}, ())
    assert "driver.module" in {check.id for check in outcome.result.verified if check.ok}
    assert host.go(branch=580, accept=["no_gpu"]).result.changed is False


def test_a_word_that_accepts_nothing_is_told_where_the_run_is_refused(host: DebianHost) -> None:
    no_gpu(host)
    with pytest.raises(Failure) as failure:
        host.go(branch=580, accept=["compiler"])
    told = {one.id: one for one in failure.value.result.findings}
    assert told["accept_unused"].severity == "warning"
    assert told["accept_unused"].detail.startswith("compiler: no finding")
    assert "accept_unused" not in seen(host, accept=["no_gpu", "compiler"])


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_word_that_is_no_finding_is_refused_with_those_that_are(host: DebianHost, state: str) -> None:
    found = refused(host, state=state, accept=["held", "foreign-origin"])["no_finding"]
    assert (found.severity, found.path) == ("error", "accept[1]")
    assert found.detail.startswith("'foreign-origin' is no finding that can be accepted; allowed are branch_unknown, ")
    assert " foreign_origin, gpus_in_use, held, " in found.detail


def test_every_finding_that_tells_a_word_for_accept_can_be_accepted() -> None:
    """By the source: a new finding must not be forgotten in the list."""
    words = set()
    for path in (CHECKOUT / "plugins/module_utils/_driver").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                words |= accepted_by(call.func.id, call)
    names = {"IN_USE": "gpus_in_use", "NOT_OURS": "not_ours"}
    found = {names.get(word, word) for word in words}
    of_matrix = {"branch_unknown", "driver_older_than_kernel", "end_of_life", "unsigned_repository"}
    assert found == set(ACCEPTABLE["nvidia_driver"]) - of_matrix


def accepted_by(function: str, call: ast.Call) -> set[str]:
    """The word that a call which makes a finding gives for accept."""
    given = {one.arg: one.value for one in call.keywords}
    if function == "_error":
        return set() if "accept" in given else {ast.unparse(call.args[0]).strip("'")}
    if function != "Finding":
        return set()
    accept = given.get("accept") or (call.args[6] if len(call.args) > 6 else None)
    return {ast.unparse(accept).strip("'")} if isinstance(accept, (ast.Constant, ast.Name)) else set()


@pytest.mark.rows("H037")
def test_an_architecture_that_nothing_tells_is_refused_and_never_guessed(host: DebianHost) -> None:
    (host.root / "proc/sys/kernel/arch").unlink()
    found = refused(host, branch=580)["system_unknown"]
    assert "an architecture that nothing on this host tells" in found.detail
    elf = b"\x7fELF\2\1\1" + bytes(9) + b"\2\0"
    host.put("/usr/bin/env", elf + (183).to_bytes(2, "little"))
    assert host.go(check=True, branch=580).result.found["system"]["architecture"] == "aarch64"
    host.put("/usr/bin/env", elf + (8).to_bytes(2, "little"))
    assert "nothing on this host tells" in refused(host, branch=580)["system_unknown"].detail
    trees.grow(host.root, trees.loaded(OLD))  # it was built for the machine
    assert (
        host.go(check=True, branch=580, accept=["driver_of_image"]).result.found["system"]["architecture"] == "x86_64"
    )


def test_locked_clocks_that_nobody_can_save_are_told_where_modules_are_loaded_anew(host: DebianHost) -> None:
    assert "locked_clocks" not in seen(host)
    host.have(OLD)
    assert seen(host, version=NEW)["locked_clocks"].severity == "warning"
    assert "locked_clocks" not in seen(host, version=NEW, apply="next_boot")
    assert "locked_clocks" not in seen(host, version=OLD)


@pytest.mark.parametrize(
    ("name", "path", "options"),
    [
        ("no_branch", "branch", {"branch": 58}),
        ("no_version", "version", {"version": "580"}),
        ("version_of_other_branch", "version", {"version": NEW, "branch": 595}),
        ("no_companion", "companions[1]", {"companions": ["auto", "fabricmanager"]}),
        ("no_kernel", "kernel", {"kernel": "newest"}),
        ("no_root", "root", {"root": "srv/tree"}),
        ("matrix", "matrix", {"matrix": {"branch": {}}}),
        ("unknown_module", "parameters.nvidia-x", {"parameters": {"nvidia-x": {"a": 1}}}),
    ],
)
def test_what_nobody_can_ask_for_is_refused_with_its_path(
    host: DebianHost, name: str, path: str, options: dict[str, Any]
) -> None:
    found = refused(host, **options)[name]
    assert (found.severity, found.path) == ("error", path)
    assert "allowed" in found.detail or found.remedy


@pytest.mark.rows("H060")
def test_what_was_brought_for_building_and_is_needed_by_now_stays_and_is_told(host: DebianHost) -> None:
    headers = f"linux-headers-{KERNEL}"
    del host.installed[headers]
    host.go(branch=580)
    assert headers in host.installed
    host.installed["zfs-dkms"] = "2.1.11-1"
    host.needs = {headers: "zfs-dkms"}
    outcome = host.go(state="absent")
    assert [one.target for one in outcome.result.findings if one.id == "package_stays"] == [headers]
    assert host.version == ""


def test_a_tree_of_files_is_only_looked_at(host: DebianHost) -> None:
    tools = Tools(runner=host, files=lambda root: host.files, live=lambda root: False, asks=False)
    with pytest.raises(Failure) as failure:
        nvidia_driver({**PARAMS, "root": str(host.root)}, False, lambda line: None, tools)
    assert [one.id for one in failure.value.result.findings] == ["not_this_host"]
    assert host.writes() == []


def test_every_finding_and_refusal_has_a_test() -> None:
    """By the source: one that is new must not go without."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    ids = set()
    for path in (CHECKOUT / "plugins/module_utils/_driver").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("Finding", "Refusal", "_error"):
                ids |= {one.value for one in call.args[:1] if isinstance(one, ast.Constant)}
    assert len(ids) > 70
    assert [one for one in sorted(ids) if f'"{one}"' not in tests] == []


@pytest.mark.rows("H038")
def test_packages_of_another_source_go_when_that_is_accepted(host: DebianHost) -> None:
    archive(host)
    host.go(source="nvidia", branch=580, accept=["foreign_origin"])
    assert "nvidia-utils-580-server" not in host.installed


@pytest.mark.parametrize(("source", "foreign"), [("distribution", False), ("precompiled", False), ("nvidia", True)])
def test_modules_that_the_distribution_signed_are_its_own(host: DebianHost, source: str, foreign: bool) -> None:
    archive(host)
    host.installed["kmod-nvidia-open"] = "580.82.07-1"  # RHEL: signed by the distribution
    host._status()
    with pytest.raises(Failure) as failure:  # for the packages that the repository lacks, if for nothing else
        seen(host, source=source, version="580.1.1")
    assert ("foreign_origin" in {one.id for one in failure.value.result.findings}) is foreign


@pytest.mark.rows("H037")
def test_a_disk_that_is_too_full_is_told_with_what_is_missing(
    host: DebianHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_found, "_space", lambda place: (100 << 20, place.endswith("/usr")))
    with pytest.raises(Failure) as failure:
        host.go()
    found = [one for one in failure.value.result.findings if one.id == "no_space"]
    assert [one.target for one in found] == ["/boot", "/usr", "/var"]
    assert "100 MiB are free, 150 MiB are needed" in found[0].detail
    assert "immutable_system" in {one.id for one in failure.value.result.findings}  # /usr is read-only


@pytest.mark.rows("H037", "H050", "H006")
@pytest.mark.parametrize(
    ("name", "severity", "prepare", "options"),
    [
        ("newer_kernel", "warning", lambda host: host.put("/lib/modules/6.8.0-99-generic/modules.dep", ""), {}),
        ("no_headers", "info", lambda host: (host.root / f"lib/modules/{KERNEL}/build/Makefile").unlink(), {}),
        ("other_driver", "info", lambda host: host.load(nouveau=0), {}),
        ("lockdown", "warning", lambda host: host.put("/sys/kernel/security/lockdown", "none [integrity]\n"), {}),
        ("unattended", "warning", lambda host: host.put(
            "/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n'), {"hold": False}),
        ("mismatch", "warning", lambda host: host.have(OLD).put(
            f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{NEW}", ""), {}),
        ("reboot_needed", "warning", lambda host: host.have(OLD).process(7, "python3").load(nvidia_uvm=1),
         {"version": NEW, "apply": "if_idle"}),
        ("parameter_elsewhere", "warning", lambda host: host.put(
            "/etc/modprobe.d/site.conf", "options nvidia NVreg_EnableMSI=0\n"),
         {"parameters": {"nvidia": {"NVreg_EnableMSI": 1}}}),
        ("fabric_version", "warning", uneven_fabric, {"version": NEW}),
        ("iommu", "warning", translated, {"companions": ["persistenced", "gds"]}),
        ("dma_buf", "info", lambda host: host.load(ib_core=0), {"companions": ["persistenced", "peermem"]}),
        ("end_of_life", "warning", lambda host: host.offer("550.163.01", flavour="proprietary"),
         {"branch": 550, "flavour": "proprietary"}),
    ],
)  # fmt: skip
def test_what_a_person_should_know_does_not_stop_the_run(
    host: DebianHost, name: str, severity: str, prepare: Prepare, options: dict[str, Any]
) -> None:
    prepare(host)
    assert seen(host, **options)[name].severity == severity


@pytest.mark.rows("H050")
def test_memory_that_gpu_and_processor_share_is_managed_by_the_driver_on_kubernetes(host: DebianHost) -> None:
    device(host, "0x2342", "0x2342")
    host.put("/var/lib/kubelet/config.yaml", "")
    outcome = host.go(branch=580)
    assert "coherent_memory" in {one.id for one in outcome.result.findings}
    assert "options nvidia NVreg_CoherentGPUMemoryMode=driver" in host.text("/etc/modprobe.d/gpufleet-nvidia.conf")


@pytest.mark.rows("H045", "P037")
def test_with_secure_boot_accepted_the_key_is_registered_and_the_next_boot_loads_the_driver(host: DebianHost) -> None:
    host.put(SECURE, b"\6\0\0\0\1").put("/var/lib/dkms/mok.pub", "key").put("/var/lib/dkms/mok.key", "key")
    told = ["is not enrolled"]
    host.answers["mokutil --test-key"] = lambda argv: said(f"{argv[-1]} {told[-1]}\n")
    host.answers["mokutil --generate-hash"] = said("input password: \n$6$abc$def\n")
    host.answers["mokutil --import"] = lambda argv: (told.append("is already in the enrollment request"), said())[1]
    outcome = host.go(branch=580, accept=["secure_boot"], mok_password="once-4711")
    assert "mok_enrolment_pending" in {one.id for one in outcome.result.findings}
    assert (host.version, any("confirmed at the console" in one for one in outcome.reboot)) == ("", True)
    assert "once-4711" not in str(outcome.as_dict()) + str(host.ran)


@pytest.mark.rows("H045")
def test_an_unsigned_module_is_planned_to_be_built_anew_where_only_signed_ones_are_loaded(host: DebianHost) -> None:
    host.offer(OLD).have(OLD).go(branch=580)
    assert host.go(check=True, branch=580).result.plan == []
    host.put(SECURE, b"\6\0\0\0\1").put("/var/lib/dkms/mok.pub", "key").put("/var/lib/dkms/mok.key", "key")
    host.answers["mokutil --test-key"] = lambda argv: said(f"{argv[-1]} is already enrolled\n")
    plan = host.go(check=True, branch=580).result.plan
    assert [(one.id, "is not signed" in one.reason) for one in plan] == [("build", True)]
    place = host.root / f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
    place.write_bytes(host.module(version=OLD, license="Dual MIT/GPL", signer="us"))
    assert host.go(check=True, branch=580).result.plan == []


def test_a_key_that_was_not_asked_for_yet_is_planned_and_its_password_judged_first(host: DebianHost) -> None:
    host.put(SECURE, b"\6\0\0\0\1").put("/var/lib/dkms/mok.pub", "key").put("/var/lib/dkms/mok.key", "key")
    told = ["is not enrolled"]
    host.answers["mokutil --test-key"] = lambda argv: said(f"{argv[-1]} {told[-1]}\n")
    host.answers["mokutil --generate-hash"] = said("input password: \n$6$abc$def\n")
    host.answers["mokutil --import"] = said(rc=1, err="Failed to enroll new keys\n")
    asked: dict[str, Any] = {"branch": 580, "accept": ["secure_boot"]}
    for wrong in ("", "a\nb"):
        found = refused(host, **asked, mok_password=wrong)
        assert (found["mok_password"].path, found["mok_password"].severity) == ("mok_password", "error")
    with pytest.raises(Failure, match="Failed to enroll new keys") as failure:
        host.go(**asked, mok_password="once-4711")
    assert "Nothing has been changed" not in failure.value.msg
    assert "mok" in failure.value.remaining
    host.answers["mokutil --import"] = lambda argv: (told.append("is already in the enrollment request"), said())[1]
    outcome = host.go(**asked, mok_password="once-4711")
    assert [action.id for action in outcome.result.plan] == ["mok"]
    host.ran.clear()
    again = host.go(**asked)
    assert (again.result.changed, host.writes()) == (False, [])
    assert "mok_enrolment_pending" in {one.id for one in again.result.findings}


def test_updates_that_are_commented_out_are_off(host: DebianHost) -> None:
    host.put("/etc/apt/apt.conf.d/20auto-upgrades", '// APT::Periodic::Unattended-Upgrade "1";\n')
    host.put("/etc/dnf/automatic.conf", "# apply_updates = yes\n")
    assert "unattended" not in seen(host, hold=False)
