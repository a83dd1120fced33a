# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info beside nvidia-smi and /proc on a machine with a real driver: every field that both tell must be equal.

Run ``python3 tests/real/gpu_info_truth.py [FOLDER]`` from the checkout there; it only reads. With a folder it writes
what it saw into it: ``gpu_info.json``, ``smi.xml`` and ``tree.json`` (the files of /proc and /sys that were read).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

CHECKOUT = Path(__file__).resolve().parents[2]
WORDS = {"enabled": "Enabled", "disabled": "Disabled", "unsupported": "N/A", "unknown": "?"}


def link_collection() -> None:
    """Makes this checkout importable by its full name."""
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-")) / "ansible_collections/gpufleet"
    folder.mkdir(parents=True)
    (folder / "nvidia").symlink_to(CHECKOUT)
    sys.path.insert(0, str(folder.parents[1]))


def fields(gpu: dict[str, Any], one: ElementTree.Element) -> list[tuple[str, str, str]]:
    """Name, what gpu_info says, what nvidia-smi says."""

    def smi(path: str) -> str:
        return (one.findtext(path) or "").strip()

    vendor, device = gpu["device_id"].split(":")
    sub_vendor, subsystem = gpu["subsystem_id"].split(":")
    mib = smi("fb_memory_usage/total").split()[0]
    watts = smi("gpu_power_readings/current_power_limit").split()[0]
    return [
        ("bus_id", "0000" + gpu["bus_id"].upper(), one.get("id", "").upper()),
        ("name", gpu["name"], smi("product_name")),
        ("architecture", gpu["architecture"], smi("product_architecture").lower()),
        ("uuid", gpu["uuid"], smi("uuid")),
        ("serial", gpu["serial"], smi("serial")),
        ("minor", str(gpu["minor"]), smi("minor_number")),
        ("vbios", gpu["vbios"].upper(), smi("vbios_version").upper()),
        ("firmware", gpu["firmware"], smi("gsp_firmware_version")),
        ("device_id", f"{device}{vendor}".upper(), smi("pci/pci_device_id").upper()),
        ("subsystem_id", f"{subsystem}{sub_vendor}".upper(), smi("pci/pci_sub_system_id").upper()),
        ("pci_class", gpu["pci_class"][2:6], f"0{smi('pci/pci_base_class')}0{smi('pci/pci_sub_class')}"),
        ("memory_mib", str(gpu["memory_mib"]), mib),
        ("persistence_mode", WORDS[gpu["persistence_mode"]], smi("persistence_mode")),
        ("ecc", WORDS[gpu["ecc"]], smi("ecc_mode/current_ecc")),
        ("compute_mode", gpu["compute_mode"], smi("compute_mode").lower()),
        ("virtualization", gpu["virtualization"], smi("gpu_virtualization_mode/virtualization_mode").lower()),
        ("power_limit_watts", f"{gpu['power_limit_watts']:.2f}", watts),
        ("mig.current", WORDS[gpu["mig"]["current"]], smi("mig_mode/current_mig")),
        ("mig.pending", WORDS[gpu["mig"]["pending"]], smi("mig_mode/pending_mig")),
        ("mig.instances", str(len(gpu["mig"]["instances"])), str(len(one.findall("mig_devices/mig_device")))),
    ]


def compare(found: dict[str, Any], root: ElementTree.Element) -> list[str]:
    """Every difference as a line; prints every field."""
    pairs = [
        ("driver_version", found["nvml"]["driver_version"], root.findtext("driver_version") or ""),
        ("driver.version", found["driver"]["version"], root.findtext("driver_version") or ""),
        ("cuda_version", found["nvml"]["cuda_version"], root.findtext("cuda_version") or ""),
        ("gpus", str(len(found["gpus"])), root.findtext("attached_gpus") or ""),
    ]
    by_bus = {one.get("id", "").lower(): one for one in root.findall("gpu")}
    for gpu in found["gpus"]:
        one = by_bus[f"0000{gpu['bus_id']}"]
        pairs += [(f"gpu {gpu['index']} {name}", ours, theirs) for name, ours, theirs in fields(gpu, one)]
        seen = sorted(use["gpu"] for process in found["processes"] for use in process["uses"])
        pids = one.findall("processes/process_info")
        pairs.append((f"gpu {gpu['index']} processes", str(seen.count(gpu["index"])), str(len(pids))))
    differences = []
    for name, ours, theirs in pairs:
        same = ours == theirs
        print(f"{'ok  ' if same else 'DIFF'} {name:<28} {ours:<44} {theirs}")
        differences += [] if same else [f"{name}: gpu_info says {ours!r}, nvidia-smi says {theirs!r}"]
    return differences


def files() -> dict[str, str]:
    """What a test needs to build the same machine as a tree: texts, and links as ``-> target``."""
    found: dict[str, str] = {}
    for base in ("/proc/driver/nvidia", "/sys/bus/pci/devices", "/sys/module/nvidia", "/sys/module/nvidia_uvm"):
        for folder, names, leaves in os.walk(base):
            for name in [*names, *leaves]:
                path = f"{folder}/{name}"
                if os.path.islink(path):
                    found[path] = f"-> {os.readlink(path)}"
    keys = ("vendor", "device", "class", "subsystem_vendor", "subsystem_device", "numa_node", "driver", "iommu_group")
    for device in sorted(os.listdir("/sys/bus/pci/devices")):
        for key in keys:
            keep(found, f"/sys/bus/pci/devices/{device}/{key}")
    for path in (
        "/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/proc/modules", "/proc/sys/kernel/osrelease",
        "/proc/cmdline", "/sys/module/nvidia/version", "/sys/module/nvidia/srcversion", "/sys/module/nvidia/refcnt",
        "/etc/os-release", "/sys/class/dmi/id/sys_vendor", "/sys/kernel/security/lockdown",
    ):  # fmt: skip
        keep(found, path)
    for path in Path("/proc/driver/nvidia").rglob("*"):
        keep(found, str(path))
    return found


def keep(found: dict[str, str], path: str) -> None:
    if os.path.islink(path):
        found[path] = f"-> {os.readlink(path)}"
    elif os.path.isfile(path):
        try:
            found[path] = Path(path).read_text(errors="replace")
        except OSError as error:
            found[path] = f"!! {error.strerror}"


def main() -> int:
    link_collection()
    from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._collect import Host, as_dict, collect

    start = time.monotonic()
    state, findings = collect(Host())
    seconds = time.monotonic() - start
    found = as_dict(state)
    smi = found["nvidia_smi"]["path"] or "nvidia-smi"
    xml = subprocess.run([smi, "-q", "-x"], stdout=subprocess.PIPE, check=True, timeout=120).stdout
    differences = compare(found, ElementTree.XML(xml))
    for finding in findings:
        print(f"finding  {finding.severity}: {finding.id}: {finding.sentence()}")
    for problem in found["problems"]:
        print(f"problem  {problem['part']} {problem['path']}: {problem['why']} {problem['remedy']}")
    print(f"gpu_info took {seconds:.2f} s; {len(differences)} differences")
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        (folder / "gpu_info.json").write_text(json.dumps(found, indent=1))
        (folder / "smi.xml").write_bytes(xml)
        (folder / "tree.json").write_text(json.dumps(files(), indent=1))
    print(*differences, sep="\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
