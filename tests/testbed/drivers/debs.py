# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages for apt: of Ubuntu's archive, of NVIDIA's repository for Ubuntu and for Debian, of Debian's own archive."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import parts
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers.parts import VERSIONS, branch
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

Relation = tuple[str, str, str]
LIBRARIES = ("cfg1", "common", "compute", "decode", "encode", "extra", "fbc1", "gl", "gpucomp")
RENAMED = 590  # since this branch NVIDIA's own packages have no branch in their names
KERNEL = "6.8.0-45-generic"


def ubuntu(
    versions: Sequence[str] = VERSIONS, *, server: bool = False, kernel: str = KERNEL, broken: Collection[str] = ()
) -> list[Package]:
    """Ubuntu's archive: the branch is in every name, ``-server`` in those of the data centre's build.

    Precompiled modules are for the one ``kernel``, by its name and by the name of its flavour.
    """
    made = []
    for version in versions:
        kind = "-server" if server else ""
        release = "0ubuntu0.24.04.1"
        flavours = ("-open",) if branch(version) >= 620 else ("", "-open")
        tag = f"-{branch(version)}{kind}"
        made += _family(version, release, tag, flavours, version in broken)
        for flavour in flavours:
            made += _precompiled(version, release, tag, flavour, kernel)
        if server:
            names = (f"nvidia-fabricmanager-{branch(version)}", f"libnvidia-nscq-{branch(version)}")
            made += [_companion(name, version, release) for name in names]
    return made


def nvidia_ubuntu(versions: Sequence[str] = VERSIONS, *, broken: Collection[str] = ()) -> list[Package]:
    """NVIDIA's repository for Ubuntu: names with the branch before 590, without it since; pinning packages since."""
    made = []
    for version in versions:
        number, release = branch(version), "1ubuntu1"
        tag = f"-{number}" if number < RENAMED else ""
        flavours = ("-open",) if number >= 620 else ("", "-open")
        made += _family(version, release, tag, flavours, version in broken)
        made += _metas(version, release, f"nvidia-driver{tag}", f"nvidia-driver{tag}-open")
        made += _around(version)
    return made + own_numbers()


def nvidia_debian(versions: Sequence[str] = VERSIONS, *, broken: Collection[str] = ()) -> list[Package]:
    """NVIDIA's repository for Debian: no branch in names; before 590 only versions and holds stay on a branch."""
    made = []
    for version in versions:
        made += _debian_family(version, "1", version in broken)
        made += _metas(version, "1", "nvidia-driver", "nvidia-driver")
        made += _around(version)
    return made + own_numbers()


def debian(version: str, *, broken: bool = False) -> list[Package]:
    """Debian's own archive: the kernel module is called nvidia-current (-open), and there is one branch."""
    release = "1~deb12u1"

    def same(*names: str) -> tuple[Relation, ...]:
        return tuple((name, "=", f"{version}-{release}") for name in names)

    kernels = []
    for name, module, license in (
        ("nvidia-kernel-dkms", "nvidia-current", parts.PROPRIETARY),
        ("nvidia-open-kernel-dkms", "nvidia-current-open", parts.OPEN),
    ):
        kernels.append(
            Package(
                name, version, release, depends=(*same("nvidia-kernel-support"), ("dkms", "", "")),
                provides=(f"nvidia-kernel-{version}",),
                conflicts=_but(name, "nvidia-kernel-dkms", "nvidia-open-kernel-dkms"),
                files=parts.dkms(version, license, module, broken=broken), **parts.scripts(version, module),
            )
        )  # fmt: skip
    return [
        *kernels,
        Package("nvidia-smi", version, release, depends=same("libnvidia-ml1"), files=parts.smi()),
        Package(
            "nvidia-driver", version, release,
            depends=(*same("libcuda1", "nvidia-smi"), (f"nvidia-kernel-{version}", "", "")),
            files=parts.says("nvidia-driver", version),
        ),
        *(_plain(name, version, release) for name in ("libcuda1", "libnvidia-ml1")),
        *(_plain(name, version, release) for name in ("nvidia-kernel-support", "firmware-nvidia-gsp")),
        Package(  # from a source of its own
            "nvidia-persistenced", "535.171.04", release,
            files=parts.service("nvidia-persistenced", "nvidia-persistenced", "535.171.04"),
        ),
    ]  # fmt: skip


# --- Families ---------------------------------------------------------------------------------------------------------


def _family(version: str, release: str, tag: str, flavours: Iterable[str], broken: bool) -> list[Package]:
    """What Ubuntu and NVIDIA's repository for it have in common. ``tag``: -580, -580-server, or nothing."""

    def least(*names: str) -> tuple[Relation, ...]:
        return tuple((f"{name}{tag}", ">=", version) for name in names)

    def one(name: str, depends: tuple[Relation, ...] = (), *, role: str = "", **more: object) -> Package:
        """``role``: the plain name, of which only one may be installed."""
        role = role or name
        alone = (role,) if f"{name}{tag}" != role else ()
        files = {**parts.says(f"{name}{tag}", version), **more.pop("files", {})}  # type: ignore[dict-item]
        return Package(
            f"{name}{tag}", version, release, depends=depends, provides=alone, conflicts=alone, files=files, **more  # type: ignore[arg-type]
        )  # fmt: skip

    firmware = f"nvidia-firmware{tag}-{version}" if tag else "nvidia-firmware"
    made = [
        *(one(f"libnvidia-{name}") for name in LIBRARIES),
        one("nvidia-kernel-common", ((firmware, "", ""),)),
        Package(firmware, version, release, files=parts.says(firmware, version)),
        one("nvidia-utils", least("libnvidia-compute"), files=parts.smi()),
        one(
            "nvidia-compute-utils", least("libnvidia-compute"),
            files=parts.service("nvidia-persistenced", "nvidia-persistenced", version),
        ),
        one("xserver-xorg-video-nvidia", least("libnvidia-cfg1")),
    ]  # fmt: skip
    for flavour in flavours:
        made += _of_flavour(version, release, tag, flavour, broken)
    return made


def _of_flavour(version: str, release: str, tag: str, flavour: str, broken: bool) -> list[Package]:
    license = parts.OPEN if flavour else parts.PROPRIETARY

    def one(name: str, *needs: str, exact: Sequence[str] = (), **more: object) -> Package:
        full = f"{name}{tag}{flavour}"
        alone = tuple(role for role in (name,) if role != full)
        depends = (
            *((need, ">=", version) for need in needs), *((need, "=", f"{version}-{release}") for need in exact),
        )  # fmt: skip
        if name == "nvidia-dkms":
            depends += (("dkms", "", ""),)
        files = {**parts.says(full, version), **more.pop("files", {})}  # type: ignore[dict-item]
        return Package(
            full, version, release, depends=depends, provides=alone, conflicts=alone, files=files, **more  # type: ignore[arg-type]
        )  # fmt: skip

    source, common = f"nvidia-kernel-source{tag}{flavour}", f"nvidia-kernel-common{tag}"
    headless = (
        f"libnvidia-cfg1{tag}",
        f"libnvidia-compute{tag}",
        f"libnvidia-decode{tag}",
        f"nvidia-compute-utils{tag}",
    )
    desktop = (
        *(f"libnvidia-{name}{tag}" for name in LIBRARIES),
        f"nvidia-utils{tag}",
        f"xserver-xorg-video-nvidia{tag}",
    )
    return [
        one("nvidia-kernel-source"),
        one(
            "nvidia-dkms", exact=(source, common), files=parts.dkms(version, license, broken=broken),
            **parts.scripts(version),
        ),
        one("nvidia-headless-no-dkms", *headless, source, common),
        one("nvidia-headless", f"nvidia-headless-no-dkms{tag}{flavour}", f"nvidia-dkms{tag}{flavour}"),
        one("nvidia-driver", *desktop, f"nvidia-compute-utils{tag}", f"nvidia-dkms{tag}{flavour}"),
    ]  # fmt: skip


def _debian_family(version: str, release: str, broken: bool) -> list[Package]:
    def exact(*names: str) -> tuple[Relation, ...]:
        return tuple((name, "=", f"{version}-{release}") for name in names)

    kernels = []
    pairs = [("nvidia-kernel-open-dkms", parts.OPEN), ("nvidia-kernel-dkms", parts.PROPRIETARY)]
    for name, license in pairs[: 1 if branch(version) >= 620 else 2]:
        kernels.append(
            Package(
                name, version, release, depends=(*exact("nvidia-kernel-support"), ("dkms", "", "")),
                provides=(f"nvidia-kernel-{version}",), conflicts=_but(name, *(one for one, _license in pairs)),
                files=parts.dkms(version, license, broken=broken), **parts.scripts(version),
            )
        )  # fmt: skip
    libraries = ("libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1", "libnvidia-gpucomp")
    more = ("nvidia-driver-libs", "nvidia-settings", "xserver-xorg-video-nvidia", "firmware-nvidia-gsp")
    cuda = (*libraries, "nvidia-persistenced")
    return [
        *kernels,
        *(_plain(name, version, release) for name in (*libraries, *more)),
        Package(
            "nvidia-kernel-support", version, release, depends=exact("firmware-nvidia-gsp"),
            files=parts.says("nvidia-kernel-support", version),
        ),
        Package(
            "nvidia-persistenced", version, release,
            files=parts.service("nvidia-persistenced", "nvidia-persistenced", version),
            before_removal=parts.DISABLE.replace("NAME", "nvidia-persistenced"),
        ),
        Package(
            "nvidia-driver-cuda", version, release, depends=(*exact(*cuda), (f"nvidia-kernel-{version}", "", "")),
            files=parts.smi(),
        ),
        Package(
            "nvidia-driver", version, release,
            depends=(*exact("nvidia-driver-libs", "xserver-xorg-video-nvidia"), (f"nvidia-kernel-{version}", "", "")),
            files=parts.says("nvidia-driver", version),
        ),
    ]  # fmt: skip


def _precompiled(version: str, release: str, tag: str, flavour: str, kernel: str) -> list[Package]:
    """Modules that Ubuntu built and signed, for one kernel; the package by the flavour's name brings the newest."""
    name, kind = f"linux-modules-nvidia{tag}{flavour}", kernel.rpartition("-")[2]
    license = parts.OPEN if flavour else parts.PROPRIETARY
    file = f"/lib/modules/{kernel}/kernel/nvidia{tag}{flavour}/nvidia.ko"
    objects = f"linux-objects-nvidia{tag}-{kernel}"
    signatures = Package(
        f"linux-signatures-nvidia-{kernel}", version, release, files=parts.says(f"signatures-{kernel}", version)
    )
    made = [
        Package(
            f"{name}-{kernel}", version, release,
            depends=((signatures.name, ">=", version), *(() if flavour else ((objects, "=", f"{version}-{release}"),))),
            files={file: (f"version={version}\0license={license}\0".encode(), 0o644)},
        ),
        Package(f"{name}-{kind}", version, release, depends=((f"{name}-{kernel}", "=", f"{version}-{release}"),)),
    ]  # fmt: skip
    return made if flavour and branch(version) < 620 else [*made, _plain(objects, version, release), signatures]


def _metas(version: str, release: str, proprietary: str, open: str) -> list[Package]:
    """Packages that only bring others. Their relations are lower bounds: a pin of one alone lets the rest move on."""
    number = branch(version)
    targets = {"nvidia-open": open, "cuda-drivers": proprietary}
    made = []
    for name, target in list(targets.items())[: 1 if number >= 620 else 2]:
        if number < RENAMED:
            made.append(_meta(f"{name}-{number}", version, release, target))
            target = f"{name}-{number}"
        made.append(_meta(name, version, release, target))
    return made


def _meta(name: str, version: str, release: str, needs: str) -> Package:
    return Package(name, version, release, depends=((needs, ">=", version),), files=parts.says(name, version))


def _around(version: str) -> list[Package]:
    """Companions with the driver's version, and pinning packages."""
    number = branch(version)
    old = f"-{number}" if number < 580 else ""
    names = [f"nvidia-fabricmanager{old}", f"nvidia-fabricmanager-dev{old}", f"libnvidia-nscq{old}"]
    if number >= 550:
        names.append(f"nvidia-imex{old}")
    if number >= 560:
        names.append(f"libnvsdm{old}")
    made = [_companion(name, version, "1", () if old else (f"{name}-{number}",)) for name in names]
    made.append(_plain("nvidia-modprobe", version, "1"))
    if number >= RENAMED:
        made += [pinning(version, str(number)), pinning(version, version)]
    return made


def pinning(version: str, what: str) -> Package:
    """``what``: a branch or a full version. Only one of them can be installed."""
    pin = f"{what}.*" if "." not in what else f"{what}-*"
    names = "nvidia-* libnvidia-* cuda-drivers* libcuda1 libnvsdm* xserver-xorg-video-nvidia*"
    text = f"Package: {names}\nPin: version {pin}\nPin-Priority: 1000\n"
    role = ("nvidia-driver-pinning",)
    path = f"/etc/apt/preferences.d/nvidia-driver-pinning-{what}.pref"  # a file with another ending is not read
    return Package(
        f"nvidia-driver-pinning-{what}",
        version,
        "1",
        provides=role,
        conflicts=role,
        files={path: (text.encode(), 0o644)},
    )


def own_numbers() -> list[Package]:
    """Companions whose version is not the driver's."""
    versions = {
        "nvlsm": "2025.10.11", "nvidia-fs-dkms": "2.29.4", "nvidia-fs": "2.29.4", "nvidia-gds": "13.0.1",
        "gdrdrv-dkms": "2.6", "libgdrapi": "2.6", "gdrcopy": "2.6",
    }  # fmt: skip
    return [_plain(name, version, "1") for name, version in versions.items()]


def _companion(name: str, version: str, release: str, provides: tuple[str, ...] = ()) -> Package:
    plain = name.removesuffix(f"-{branch(version)}")
    programs = {"nvidia-fabricmanager": "nv-fabricmanager", "nvidia-imex": "nvidia-imex"}
    more = parts.service(plain, programs[plain], version) if plain in programs else {}
    alone = () if name == plain else (plain,)
    files = {**parts.says(name, version), **more}
    return Package(name, version, release, provides=(*provides, *alone), conflicts=alone, files=files)


def _plain(name: str, version: str, release: str) -> Package:
    return Package(name, version, release, files=parts.says(name, version))


def _but(name: str, *names: str) -> tuple[str, ...]:
    return tuple(one for one in names if one != name)
