# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages for dnf and zypper: of NVIDIA's repository for RHEL and what follows it, and for SUSE."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import parts
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers.parts import VERSIONS, branch
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

EPOCH = "3"
KERNEL = "5.14.0-503.el9"
LIBRARIES = (
    *("nvidia-driver-libs", "nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg", "libnvidia-fbc"),
    *("libnvidia-gpucomp", "nvidia-modprobe", "nvidia-settings", "nvidia-xconfig", "xorg-x11-nvidia"),
)
OPEN, PROPRIETARY = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"


def enterprise(
    versions: Sequence[str] = VERSIONS, *, release: str = "1.el9", kernel: str = KERNEL, broken: Collection[str] = ()
) -> list[Package]:
    """RHEL 8 and 9 with ``modules``, RHEL 10 and Fedora without."""
    made = []
    for version in versions:
        made += _driver(version, release, version in broken)
        if branch(version) < 620:
            made.append(_precompiled(version, release, kernel))
        made += _around(version)
    return [*made, *own_numbers()]


def modules(versions: Sequence[str] = VERSIONS, release: str = "1.el9", kernel: str = KERNEL) -> str:
    """The modules.yaml: streams by branch and flavour, and those that follow the newest version.

    A branch's streams hold all its versions, so that older ones can be had.
    """
    newest = max(versions, key=lambda version: [int(part) for part in version.split(".")])
    found: dict[str, list[str]] = {}
    for version in versions:
        kinds = {"open-dkms": OPEN, "latest-dkms": PROPRIETARY, "latest": f"kmod-nvidia-{version}-{kernel}"}
        if branch(version) >= 620:
            kinds = {"open-dkms": OPEN}
        of_branch = {"open-dkms": f"{branch(version)}-open", "latest-dkms": f"{branch(version)}-dkms"}
        for kind, module in kinds.items():
            names = [one.name for one in _driver(version, release, False) if one.name not in (OPEN, PROPRIETARY)]
            lines = [f"{name}-{EPOCH}:{version}-{release}.x86_64" for name in [*names, module]]
            found.setdefault(of_branch.get(kind, str(branch(version))), []).extend(lines)
            if version == newest:
                found[kind] = lines
    return "".join(_stream(name, lines) for name, lines in found.items())


def _stream(name: str, artifacts: Sequence[str]) -> str:
    context = hashlib.sha256(name.encode()).hexdigest()[:8]
    lines = [
        "---",
        "document: modulemd",
        "version: 2",
        "data:",
        "  name: nvidia-driver",
        f'  stream: "{name}"',
        "  version: 20261101000000",
        f'  context: "{context}"',
        "  arch: x86_64",
        "  summary: made by the testbed",
        "  description: made by the testbed",
        "  license: {module: [none]}",
        "  profiles:",
        "    default: {rpms: [nvidia-driver, nvidia-driver-cuda]}",
        "    fm: {rpms: [nvidia-driver, nvidia-driver-cuda, nvidia-fabricmanager]}",
        "    ks: {rpms: [nvidia-driver-cuda]}",
        "  artifacts:",
        "    rpms:",
        *(f'    - "{one}"' for one in artifacts),
        "...",
    ]
    return "\n".join(lines) + "\n"


def suse(versions: Sequence[str] = VERSIONS) -> list[Package]:
    """SLES and openSUSE: generation G06 up to 580, G07 since 595 (it drives Turing and newer); nothing between."""
    made = []
    for version in versions:
        if 580 < branch(version) < 595:
            continue
        tag = "G06" if branch(version) <= 580 else "G07"
        utils = [("nvidia-compute-utils", parts.smi()), ("nvidia-persistenced", {})]
        names = ("nvidia-compute", "nvidia-gl", "nvidia-video", "nvidia-common")
        made += [_plain(f"{name}-{tag}", version, "1") for name in names]
        made += [
            Package(
                f"{name}-{tag}", version, depends=((f"nvidia-compute-{tag}", "=", f"{version}-1"),),
                files={**parts.says(f"{name}-{tag}", version), **files},
            )
            for name, files in utils
        ]  # fmt: skip
        made += [*_suse_kernels(version, tag), *_around(version)]
    return [*made, *own_numbers()]


def _suse_kernels(version: str, tag: str) -> list[Package]:
    signed = f"nvidia-open-driver-{tag}-signed-cuda-kmp-default"
    names = [signed, f"nvidia-open-driver-{tag}", f"nvidia-driver-{tag}"][: 2 if branch(version) >= 620 else 3]
    made = [
        Package(
            name, version, conflicts=tuple(one for one in names if one != name), provides=(f"nvidia-kmp = {version}",),
            files=parts.says(name, version),
        )
        for name in names
    ]  # fmt: skip
    targets = {"nvidia-open": signed, "cuda-drivers": f"nvidia-driver-{tag}"}
    needs = (f"nvidia-compute-utils-{tag}", ">=", version)
    for name, target in targets.items():
        if target in names:
            depends = ((target, ">=", version), needs)
            made.append(Package(name, version, depends=depends, files=parts.says(name, version)))
    return made


def _driver(version: str, release: str, broken: bool) -> list[Package]:
    full = f"{EPOCH}:{version}-{release}"

    def one(name: str, *same: str, kmod: bool = False, **more: object) -> Package:
        depends = tuple((need, "=", full) for need in same)
        if kmod:
            depends += (("nvidia-kmod", ">=", f"{EPOCH}:{version}"),)
        files = {**parts.says(name, version), **more.pop("files", {})}  # type: ignore[dict-item]
        return Package(name, version, release, depends=depends, epoch=EPOCH, files=files, **more)  # type: ignore[arg-type]

    kernels = []
    flavours = [(OPEN, parts.OPEN), (PROPRIETARY, parts.PROPRIETARY)]
    for name, license in flavours[: 1 if branch(version) >= 620 else 2]:
        kernels.append(
            Package(
                name, version, release, epoch=EPOCH, depends=(("nvidia-kmod-common", "=", full), ("dkms", "", "")),
                provides=(f"nvidia-kmod = {full}",), conflicts=tuple(two for two, _license in flavours if two != name),
                files=parts.dkms(version, license, broken=broken), **parts.scripts(version),
            )
        )  # fmt: skip
    metas = [one("nvidia-open", "nvidia-driver", "nvidia-driver-cuda", OPEN)]
    if branch(version) < 620:
        metas.append(one("cuda-drivers", "nvidia-driver", "nvidia-driver-cuda", PROPRIETARY))
    return [
        *kernels,
        *(one(name) for name in LIBRARIES),
        one("nvidia-kmod-common"),
        one("nvidia-persistenced", files=parts.service("nvidia-persistenced", "nvidia-persistenced", version)),
        one("nvidia-driver", "nvidia-driver-libs", kmod=True),
        one(
            "nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg", "nvidia-persistenced",
            kmod=True, files=parts.smi(),
        ),
        *metas,
    ]  # fmt: skip


def _precompiled(version: str, release: str, kernel: str) -> Package:
    full = f"{EPOCH}:{version}-{release}"
    name = f"kmod-nvidia-{version}-{kernel}"
    file = f"/lib/modules/{kernel}/extra/drivers/video/nvidia/nvidia.ko"
    content = f"version={version}\0license={parts.PROPRIETARY}\0".encode()
    return Package(
        name, version, release, epoch=EPOCH, depends=(("nvidia-kmod-common", "=", full),),
        provides=(f"nvidia-kmod = {full}",), conflicts=(OPEN, PROPRIETARY), files={file: (content, 0o644)},
    )  # fmt: skip


def _around(version: str) -> list[Package]:
    """Companions: no epoch, and no distribution in their release."""
    number = branch(version)
    old = number < 580
    manager = "nvidia-fabric-manager" if old else "nvidia-fabricmanager"
    names = [manager, "nvidia-fabric-manager-devel", f"libnvidia-nscq{f'-{number}' if old else ''}"]
    if number >= 550:
        names.append("nvidia-imex")
    if number >= 560:
        names.append("libnvsdm")
    made = []
    for name in names:
        programs = {manager: "nv-fabricmanager", "nvidia-imex": "nvidia-imex"}
        more = {}
        if name in programs:
            unit = "nvidia-fabricmanager" if name == manager else name
            more = parts.service(unit, programs[name], version)
        made.append(Package(name, version, files={**parts.says(name, version), **more}))
    return made


def own_numbers() -> list[Package]:
    """Companions whose version is not the driver's."""
    versions = {
        "nvlsm": "2025.10.11", "nvidia-gds": "13.0.1", "nvidia-fs-dkms": "2.29.4", "gdrcopy": "2.6",
        "gdrcopy-kmod": "2.6",
    }  # fmt: skip
    return [_plain(name, version, "1") for name, version in versions.items()]


def _plain(name: str, version: str, release: str) -> Package:
    return Package(name, version, release, files=parts.says(name, version))
