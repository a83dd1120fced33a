# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs for a test host: the NVML double where NVIDIA's packages put the library, and pynvml of the controller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pynvml

from ansible_collections.gpufleet.nvidia.tests.testbed import nvml
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.host import Host

LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
#: Not among what a snapshot sees: it plays the hardware.
STATE = "/var/lib/nvml-double/state"
LOG = "/var/lib/nvml-double/calls.jsonl"
VARIABLES = {"NVML_DOUBLE_STATE": STATE, "NVML_DOUBLE_LOG": LOG}
PROGRAM = "/usr/local/bin/nvml-double"
SMI = "/usr/lib/nvml-double/nvidia-smi"
# What a boot does to GPUs, before any service may look at them.
AT_BOOT = f"""\
[Unit]
Description=What a boot does to the GPUs
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target

[Service]
Type=oneshot
ExecStart={PROGRAM} reboot {STATE}

[Install]
WantedBy=sysinit.target
"""
PCI = "/var/lib/nvml-double/pci"
PCI_UNIT = "sys-bus-pci-devices.mount"
AT_BOOT_PCI = f"""\
[Unit]
Description=GPUs on the PCI bus

[Mount]
What={PCI}
Where=/sys/bus/pci/devices
Options=bind

[Install]
WantedBy=local-fs.target
"""


def install(host: Host, *products: str) -> None:
    """Give a host GPUs: ``install(host, "--product", "A30", "--count", "2")``, as ``nvml-double create`` has them.

    Every process finds them: those that come by SSH or sudo (/etc/environment), and units of systemd. nvidia-smi does
    whatever environment it is run with, as the real one.
    """
    folder = nvml.build(host_report)
    host.put(LIBRARY, folder / nvml.LIBRARY)
    host.put(PROGRAM, folder / nvml.PROGRAM, mode=0o755)
    host.put("/usr/lib/python3/dist-packages/pynvml.py", Path(pynvml.__file__))
    host.put("/etc/environment", "".join(f"{name}={value}\n" for name, value in VARIABLES.items()))
    host.put("/etc/sudoers.d/nvml-double", f'Defaults env_keep += "{" ".join(VARIABLES)}"\n', mode=0o440)
    words = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    host.run(["mkdir", "-p", str(Path(SMI).parent)])
    host.put(SMI, folder / nvml.SMI, mode=0o755)
    host.put("/usr/bin/nvidia-smi", f'#!/bin/sh\nexec env {words} {SMI} "$@"\n', mode=0o755)
    host.put("/etc/systemd/system.conf.d/nvml-double.conf", f"[Manager]\nDefaultEnvironment={words}\n")
    host.put("/etc/systemd/system/nvml-double-boot.service", AT_BOOT)
    host.run(["mkdir", "-p", str(Path(STATE).parent)])
    host.run([PROGRAM, "create", *products, STATE])
    host.put(LOG, "", mode=0o666)  # calls of every user are written down
    host.run("ldconfig; systemctl daemon-reexec; systemctl enable --quiet nvml-double-boot.service")


def install_driver(host: Host) -> None:
    """What else of a driver NVIDIA's toolkit looks for, beside the GPUs that ``install`` gave: device files, which come
    again at each boot, and the names of its libraries. They are nothing that a program could use."""
    state, folder = show(host), Path(LIBRARY).parent
    host.put(f"{folder}/libcuda.so.{state['driver']}", "")
    host.run(["cp", LIBRARY, f"{folder}/libnvidia-ml.so.{state['driver']}"])
    nodes = {"nvidiactl": "195:255", "nvidia-uvm": "511:0", "nvidia-uvm-tools": "511:1", "nvidia-modeset": "195:254"}
    nodes |= {f"nvidia{gpu}": f"195:{gpu}" for gpu in range(len(state["gpus"]))}
    lines = [f"c /dev/{name} 0666 root root - {number}\n" for name, number in nodes.items()]
    host.put("/etc/tmpfiles.d/nvidia.conf", "".join(lines))
    host.run(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/nvidia.conf"])


def install_pci(host: Host, *devices: str) -> None:
    """GPUs as sysfs shows them, without a driver: ``install_pci(host, "2330", "2330")`` are two H100. They come again
    at each boot. Nothing else of the machine's PCI devices is seen then."""
    for number, device in enumerate(devices, 1):
        folder = f"{PCI}/0000:{number:02x}:00.0"
        regions = "0x1000 0x1fff 0x200\n" * 6
        for name, text in {
            "vendor": "0x10de",
            "device": f"0x{device}",
            "class": "0x030200",
            "resource": regions,
        }.items():
            host.put(f"{folder}/{name}", text.rstrip("\n") + "\n")
    host.put(f"/etc/systemd/system/{PCI_UNIT}", AT_BOOT_PCI)
    host.run(f"systemctl daemon-reload; systemctl enable --quiet --now {PCI_UNIT}")


def host_report(_line: str) -> None:
    """The double is built in seconds; nobody needs to know."""


def show(host: Host) -> dict[str, Any]:
    """The state of the host's GPUs, past NVML."""
    told: dict[str, Any] = json.loads(host.run([PROGRAM, "show", STATE]).stdout)
    return told


def calls(host: Host) -> list[dict[str, Any]]:
    """Every call of NVML so far, by whichever process."""
    text = host.get(LOG).decode() if host.exists(LOG) else ""
    return [json.loads(line) for line in text.splitlines()]
