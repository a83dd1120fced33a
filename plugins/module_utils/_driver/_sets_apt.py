# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of Ubuntu's archive, of Debian's, and of NVIDIA's repository for both. Pure.

NVIDIA's names carry the branch up to 580 and no number from 590 on: a pinning package keeps to a branch or a version.
Ubuntu's own always carry the branch; its server build is the one that a data centre's fabric manager follows.
"""

from __future__ import annotations

from typing import List, Tuple

from .._matrix import FIRST_UNSUFFIXED, version_key
from ._sets import (
    FIRMWARE,
    HEADERS,
    KERNEL,
    PINNING,
    PREREQUISITE,
    USER,
    Package,
    PackageSet,
    Refusal,
    exact,
    loose,
    others,
    unique,
)
from ._sets_companions import companions, ubuntu_archive
from ._sets_companions import leaves as companions_leave
from ._types import COMPUTE, DESKTOP, DISTRIBUTION, OPEN, PRECOMPILED, System, Wanted

_GA_KERNELS = {"22.04": (5, 15), "24.04": (6, 8), "26.04": (7, 0)}
_FLAVOURED = ("nvidia-dkms", "nvidia-kernel-source", "nvidia-headless", "nvidia-headless-no-dkms", "nvidia-driver")
_USER = ("nvidia-kernel-common", "nvidia-utils", "nvidia-compute-utils", "libnvidia-cfg1", "libnvidia-compute")
_DISPLAY = (
    "libnvidia-common",
    "libnvidia-decode",
    "libnvidia-encode",
    "libnvidia-extra",
    "libnvidia-gl",
    "xserver-xorg-video-nvidia",
)
_STEMS = (*_FLAVOURED, *_USER, *_DISPLAY, "libnvidia-fbc1", "libnvidia-gpucomp")
_NUMBERED = "[0-9][0-9][0-9]"
_PRECOMPILED = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")

BUILD_NOTE = "A metapackage succeeds although DKMS built nothing: the module file of the kernel is the proof."

SIGNED_NOTE = (
    "The modules are signed by Canonical and load under Secure Boot. User space and modules come from two source "
    "packages: their versions have to be equal before anything is installed."
)


def pinning(wanted: Wanted) -> List[Package]:
    """The package that keeps NVIDIA's repository to a version, or to a branch: installed before the driver."""
    if wanted.branch < FIRST_UNSUFFIXED:
        return []
    return loose(PINNING, f"nvidia-driver-pinning-{wanted.version or wanted.branch}")


def _other_pinning(wanted: Wanted) -> List[str]:
    name = "nvidia-driver-pinning-"
    if wanted.branch < FIRST_UNSUFFIXED:
        return [f"{name}*"]
    if wanted.version:
        return [f"{name}{_NUMBERED}", *others(name, wanted.version)]
    return [*others(name, str(wanted.branch)), f"{name}{wanted.branch}.*"]


# -- Ubuntu --------------------------------------------------------------------------------------------------------


def ubuntu(system: System, wanted: Wanted) -> PackageSet:
    suffix, o = _suffix(system, wanted), "-open" if wanted.flavour == OPEN else ""
    prebuilt = wanted.source == PRECOMPILED
    packages = [] if ubuntu_archive(system, wanted) else pinning(wanted)
    packages += _prebuilt(system, wanted, suffix, o) if prebuilt else _built(suffix, o)
    packages += _ubuntu_user(system, wanted, suffix, o, prebuilt)
    packages += companions(system, wanted)
    if not prebuilt:
        packages += _ubuntu_build(system)
    return PackageSet(
        packages=tuple(packages),
        holds=tuple(one.name for one in packages if one.exact),
        leaves=unique([*_ubuntu_leaves(system, wanted, suffix, o), *companions_leave(system, wanted)]),
        notes=_ubuntu_notes(system, wanted),
        build=not prebuilt,
    )


def _suffix(system: System, wanted: Wanted) -> str:
    if ubuntu_archive(system, wanted):
        return f"-{wanted.branch}" + ("" if wanted.use == DESKTOP else "-server")
    return f"-{wanted.branch}" if wanted.branch < FIRST_UNSUFFIXED else ""


def _built(suffix: str, o: str) -> List[Package]:
    return exact(KERNEL, f"nvidia-dkms{suffix}{o}", f"nvidia-kernel-source{suffix}{o}")


def _prebuilt(system: System, wanted: Wanted, suffix: str, o: str) -> List[Package]:
    """The metapackage that follows the kernel, and what the kernel that will run needs now."""
    if not system.kernel:
        raise Refusal("kernel_unknown", "precompiled modules are for one kernel, and which one will run is not known")
    names = [
        f"linux-modules-nvidia{suffix}{o}-{kernel_flavour(system)}",
        f"linux-modules-nvidia{suffix}{o}-{system.kernel}",
    ]
    if not o:
        names.append(f"linux-objects-nvidia{suffix}-{system.kernel}")
    if system.arch == "x86_64" or system.version == "26.04":
        names.append(f"linux-signatures-nvidia-{system.kernel}")
    return loose(KERNEL, *names)


def kernel_flavour(system: System) -> str:
    """What Ubuntu calls the kernel in names of metapackages: 6.8.0-45-generic of 24.04 is generic, 6.14's is hwe."""
    number, _dash, rest = system.kernel.partition("-")
    flavour = rest.partition("-")[2] or "generic"
    ga = version_key(number)[:2] == _GA_KERNELS[system.version]
    return flavour if ga or flavour not in ("generic", "lowlatency") else f"{flavour}-hwe-{system.version}"


def _ubuntu_user(system: System, wanted: Wanted, suffix: str, o: str, prebuilt: bool) -> List[Package]:
    packages = exact(USER, *(f"{stem}{suffix}" for stem in _USER))
    if not suffix:
        packages += exact(FIRMWARE, "nvidia-firmware")
    if wanted.use == COMPUTE:
        headless = "nvidia-headless-no-dkms" if prebuilt else "nvidia-headless"
        return packages + exact(USER, f"{headless}{suffix}{o}")
    if not ubuntu_archive(system, wanted):
        packages += exact(USER, meta(wanted))
    fbc = () if system.arch == "aarch64" else ("libnvidia-fbc1",)
    return packages + exact(USER, f"nvidia-driver{suffix}{o}", *(f"{stem}{suffix}" for stem in (*_DISPLAY, *fbc)))


def meta(wanted: Wanted) -> str:
    """NVIDIA's metapackage of the whole driver."""
    name = "nvidia-open" if wanted.flavour == OPEN else "cuda-drivers"
    return f"{name}-{wanted.branch}" if wanted.branch < FIRST_UNSUFFIXED else name


def _other_metas(wanted: Wanted) -> List[str]:
    """The other flavour's, those of other branches, and the one that leaves a branch."""
    mine, other = ("nvidia-open", "cuda-drivers") if wanted.flavour == OPEN else ("cuda-drivers", "nvidia-open")
    found = [other, f"{other}-{_NUMBERED}"]
    if wanted.branch < FIRST_UNSUFFIXED:
        return [*found, mine, *others(f"{mine}-", str(wanted.branch), "")]
    return [*found, f"{mine}-{_NUMBERED}"]


def _ubuntu_build(system: System) -> List[Package]:
    packages = loose(HEADERS, f"linux-headers-{system.kernel}") if system.kernel else []
    if system.version == "26.04":  # modules are compressed with it, and DKMS does not depend on it
        packages += loose(PREREQUISITE, "zstd")
    return packages


def _ubuntu_leaves(system: System, wanted: Wanted, suffix: str, o: str) -> List[str]:
    other = "" if o else "-open"
    found = [f"{stem}{suffix}{other}" for stem in _FLAVOURED]
    if wanted.source == PRECOMPILED:
        found += [f"nvidia-dkms{suffix}{o}", f"nvidia-headless{suffix}{o}", *_other_prebuilt(suffix, o)]
    else:
        found += [f"nvidia-headless-no-dkms{suffix}{o}", *_PRECOMPILED]
    if ubuntu_archive(system, wanted):
        found += [f"{name}{number}" for name in ("cuda-drivers", "nvidia-open") for number in ("", f"-{_NUMBERED}")]
        found.append("nvidia-driver-pinning-*")
    else:
        found += [*_other_metas(wanted), *_other_pinning(wanted)]
    return [*found, *(_suffixed(suffix, wanted.branch) if suffix else _numbered())]


def _other_prebuilt(suffix: str, o: str) -> List[str]:
    """Modules of other branches, of the other flavour, and of the branch's other build."""
    modules, branch = f"linux-modules-nvidia{suffix}", suffix[1:4]
    found = others("linux-modules-nvidia-", branch)
    found += ["linux-objects-nvidia-*"] if o else others("linux-objects-nvidia-", branch)
    found.append(f"{modules}-server-*" if len(suffix) == 4 else f"linux-modules-nvidia-{branch}-[!s]*")
    # Flavours of kernels are names too: oracle begins as open does.
    return [*found, *([f"{modules}-[!os]*", f"{modules}-o[!p]*"] if o else [f"{modules}-open-*"])]


def _numbered() -> List[str]:
    """Names with the number of a branch: all of them go where names have none."""
    return [f"{stem}-{_NUMBERED}*" for stem in (*_STEMS, "nvidia-firmware")]


def _suffixed(suffix: str, branch: int) -> List[str]:
    """Names of other branches, of the other build of the branch, and names without a number."""
    number = str(branch)
    found = [*_STEMS, *(f"{stem}-open" for stem in _FLAVOURED), "nvidia-firmware"]
    for head in ("nvidia-[a-z]*-", "libnvidia-[a-z]*-", "xserver-xorg-video-nvidia-", "libnvsdm-"):
        found += others(head, number)
    if suffix.endswith("-server"):
        found += [f"{stem}-{number}" for stem in _STEMS] + [f"{stem}-{number}-open" for stem in _FLAVOURED]
        return [*found, f"nvidia-firmware-{number}-[0-9]*"]
    return [*found, *(f"{head}*-{number}-server*" for head in ("nvidia-", "libnvidia-", "xserver-xorg-video-"))]


def _ubuntu_notes(system: System, wanted: Wanted) -> Tuple[str, ...]:
    if wanted.source == PRECOMPILED:
        return (SIGNED_NOTE,)
    return (BUILD_NOTE,)


# -- Debian --------------------------------------------------------------------------------------------------------

#: Branches of Debian's own packages, by release; 470 has names of its own.
DEBIAN_BRANCHES = {"12": (535, 470), "13": (550,)}
#: Since this branch there are sets without a desktop.
COMPUTE_SINCE = 560
MIXED_NOTE = (
    "Debian's own packages and NVIDIA's do not mix (alternatives, file conflicts): one of them is purged first."
)
WHOLE_NOTE = f"Sets without a desktop are there from branch {COMPUTE_SINCE} on: this is the whole driver."


def debian(system: System, wanted: Wanted) -> PackageSet:
    return _debian_own(system, wanted) if wanted.source == DISTRIBUTION else _debian_nvidia(system, wanted)


def _debian_own(system: System, wanted: Wanted) -> PackageSet:
    branches = DEBIAN_BRANCHES[system.version]
    if wanted.branch not in branches:
        told = " or ".join(str(branch) for branch in branches)
        message = f"Debian {system.version} has one version of the driver, of branch {told}, not {wanted.branch}"
        raise Refusal("no_branch_choice", message, f"Debian {system.version}: {told} [archive]")
    legacy = wanted.branch < 500
    kernel, user, firmware, module = _debian_legacy(wanted) if legacy else _debian_current(wanted)
    packages = [*exact(KERNEL, kernel), *exact(USER, *user), *exact(FIRMWARE, *firmware)]
    packages += [*companions(system, wanted), *_debian_headers(system)]
    flavoured = ("nvidia-kernel-dkms", "nvidia-open-kernel-dkms")
    return PackageSet(
        packages=tuple(packages),
        holds=tuple(one.name for one in packages if one.exact),
        leaves=(
            *(name for name in flavoured if name != kernel),
            *(() if legacy else ("nvidia-tesla-[0-9]*",)),
            "nvidia-kernel-open-dkms",
            "nvidia-driver-cuda",
            "nvidia-driver-pinning-*",
            *(f"{name}{number}" for name in ("cuda-drivers", "nvidia-open") for number in ("", f"-{_NUMBERED}")),
            *(f"{name}{number}" for name in _DEBIAN_FABRIC for number in ("", f"-{_NUMBERED}")),
        ),
        module=module,
        notes=(MIXED_NOTE, BUILD_NOTE),
        repositories=("contrib", "non-free", "non-free-firmware"),
    )


_DEBIAN_FABRIC = ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex", "libnvsdm")

_Names = Tuple[str, Tuple[str, ...], Tuple[str, ...], str]


def _debian_current(wanted: Wanted) -> _Names:
    open_ = wanted.flavour == OPEN
    kernel = "nvidia-open-kernel-dkms" if open_ else "nvidia-kernel-dkms"
    user = ("nvidia-smi", "libcuda1", "libnvidia-ml1", *(() if wanted.use == COMPUTE else ("nvidia-driver",)))
    return kernel, user, ("firmware-nvidia-gsp",), "nvidia-current-open" if open_ else "nvidia-current"


def _debian_legacy(wanted: Wanted) -> _Names:
    name = f"nvidia-tesla-{wanted.branch}"
    user = (f"{name}-smi", f"lib{name}-cuda1", f"lib{name}-ml1")
    return f"{name}-kernel-dkms", (*user, *(() if wanted.use == COMPUTE else (f"{name}-driver",))), (), name


def _debian_nvidia(system: System, wanted: Wanted) -> PackageSet:
    kernel, other = "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
    if wanted.flavour != OPEN:
        kernel, other = other, kernel
    packages = [*pinning(wanted), *exact(KERNEL, kernel), *exact(USER, *_debian_user(wanted))]
    packages += [*companions(system, wanted), *_debian_headers(system)]
    foreign = ("nvidia-open-kernel-dkms", "nvidia-tesla-[0-9]*", "nvidia-legacy-[0-9]*")
    old = () if wanted.branch >= COMPUTE_SINCE or wanted.use != COMPUTE else (WHOLE_NOTE,)
    return PackageSet(
        packages=tuple(packages),
        holds=tuple(one.name for one in packages if one.exact),
        leaves=(
            *(other, *foreign, *_other_metas(wanted), *_other_pinning(wanted)),
            *companions_leave(system, wanted),
            *(others("nvidia-[a-z]*-", str(wanted.branch), "") if wanted.branch < FIRST_UNSUFFIXED else ()),
        ),
        notes=(MIXED_NOTE, BUILD_NOTE, *old),
        repositories=("contrib",),
    )


def _debian_user(wanted: Wanted) -> Tuple[str, ...]:
    if wanted.branch < COMPUTE_SINCE:
        return (meta(wanted), "nvidia-driver") if wanted.flavour != OPEN else ("nvidia-driver",)
    if wanted.use == COMPUTE:
        return ("nvidia-driver-cuda",)
    return ("nvidia-driver",) if wanted.use == DESKTOP else (meta(wanted), "nvidia-driver", "nvidia-driver-cuda")


def _debian_headers(system: System) -> List[Package]:
    """For the kernel that will run, and for those that come after it."""
    if not system.kernel:
        return []
    arch = "arm64" if system.arch == "aarch64" else "amd64"
    variant = next((f"{name}-" for name in ("cloud", "rt") if system.kernel.endswith(f"-{name}-{arch}")), "")
    return loose(HEADERS, f"linux-headers-{system.kernel}", f"linux-headers-{variant}{arch}")
