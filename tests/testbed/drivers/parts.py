# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What packages of all distributions share: versions, the kernel module that dkms builds, stand-ins for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Content, Package

#: Two of each branch where updates within a branch are of interest.
VERSIONS = (
    "535.261.03", "535.309.01", "550.90.12", "550.163.01", "570.158.01", "570.172.08", "580.95.05", "580.178.04",
    "590.44.01", "590.48.01", "595.71.05", "595.91.07", "610.57.04", "615.71.03", "620.31.01",
)  # fmt: skip
OPEN = "Dual MIT/GPL"
PROPRIETARY = "NVIDIA"

# Ten lines of C. Its license is what tells open and proprietary modules apart.
SOURCE = """#include <linux/init.h>
#include <linux/module.h>

static int __init begin(void) { return 0; }
static void __exit end(void) { }
module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("made by the testbed");
MODULE_VERSION("@VERSION@");
MODULE_LICENSE("@LICENSE@");
"""
DKMS = """PACKAGE_NAME="@MODULE@"
PACKAGE_VERSION="@VERSION@"
BUILT_MODULE_NAME[0]="@MODULE@"
DEST_MODULE_LOCATION[0]="/updates/dkms"
AUTOINSTALL="yes"
"""
# As in life it ends well, whatever became of the build.
BUILD = """if [ -x /usr/sbin/dkms ]; then
    dkms add -m @MODULE@ -v @VERSION@ || true
    for kernel in $(ls /lib/modules); do
        dkms install --force -m @MODULE@ -v @VERSION@ -k "$kernel" || true
    done
fi
exit 0
"""
UNBUILD = """[ ! -x /usr/sbin/dkms ] || dkms remove -m @MODULE@ -v @VERSION@ --all || true
"""
# The NVML double's program where the host has one; without a loaded module what the real one says.
SMI = """#!/bin/sh
if [ -x /usr/lib/nvml-double/nvidia-smi ]; then
    set -a
    . /etc/environment
    exec /usr/lib/nvml-double/nvidia-smi "$@"
fi
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
exit 9
"""
SERVICE = """[Unit]
Description=NAME of the testbed

[Service]
ExecStart=/usr/bin/PROGRAM
Restart=no

[Install]
WantedBy=multi-user.target
"""


# As packages of real distributions do when they go.
DISABLE = """[ ! -d /run/systemd/system ] || systemctl --quiet disable --now NAME.service || true
"""


def branch(version: str) -> int:
    return int(version.partition(".")[0])


def says(name: str, version: str) -> dict[str, Content]:
    """A file that only shows that the package is there."""
    return {f"/usr/share/{name}/version": (f"{version}\n".encode(), 0o644)}


def smi() -> dict[str, Content]:
    return {"/usr/bin/nvidia-smi": (SMI.encode(), 0o755)}


def service(name: str, program: str, version: str) -> dict[str, Content]:
    """A program that runs until it is ended, and its unit, which nobody has enabled; ``-v`` tells its version."""
    text = f"#!/bin/sh\n[ \"$1\" != -v ] || {{ echo 'version is: {version}'; exit 0; }}\nexec sleep infinity\n"
    unit = SERVICE.replace("NAME", name).replace("PROGRAM", program)
    return {
        f"/usr/bin/{program}": (text.encode(), 0o755),
        f"/lib/systemd/system/{name}.service": (unit.encode(), 0o644),
    }


def dkms(version: str, license: str, module: str = "nvidia", *, broken: bool = False) -> dict[str, Content]:
    """The sources of the kernel module, where dkms looks for them. A ``broken`` one does not compile."""
    source = SOURCE + ('#error "does not go with this kernel"\n' if broken else "")
    texts = {f"{module}.c": source, "Makefile": "obj-m := @MODULE@.o\n", "dkms.conf": DKMS}
    return {
        f"/usr/src/{module}-{version}/{name}": (_filled(text, version, module, license).encode(), 0o644)
        for name, text in texts.items()
    }


def scripts(version: str, module: str = "nvidia") -> dict[str, str]:
    """What a package with sources for dkms runs: ``after`` and ``leaving`` of ``Package``."""
    return {"after": _filled(BUILD, version, module), "leaving": _filled(UNBUILD, version, module)}


def _filled(text: str, version: str, module: str, license: str = "") -> str:
    return text.replace("@VERSION@", version).replace("@MODULE@", module).replace("@LICENSE@", license)


def leave_out(packages: Iterable[Package], *patterns: str, version: str = "") -> list[Package]:
    """As a mirror that was made of names by hand: without the packages of these names (of one version, if given)."""
    return [
        one
        for one in packages
        if not (any(fnmatchcase(one.name, pattern) for pattern in patterns) and version in ("", one.version))
    ]


def distribution(names: Sequence[str] = ("dkms",)) -> list[Package]:
    """Names alone of what a distribution has and the driver's packages need."""
    return [Package(name, "3.0.10", files=says(name, "3.0.10")) for name in names]
