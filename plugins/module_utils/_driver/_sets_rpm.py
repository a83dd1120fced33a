# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of NVIDIA's repositories for rpm, and of the distributions that sign the open modules themselves. Pure.

Names carry no branch. EL 8, EL 9 and Amazon Linux keep to one by a module stream, the others by locks that are set
before the first installation; SUSE has generations instead, and G07 is not for GPUs older than Turing.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from .._matrix import version_key
from ._sets import FIRMWARE, HEADERS, KERNEL, PREREQUISITE, USER, Package, PackageSet, Refusal, exact, loose
from ._sets_apt import BUILD_NOTE, COMPUTE_SINCE, WHOLE_NOTE
from ._sets_companions import companions
from ._sets_companions import leaves as companions_leave
from ._types import COMPUTE, DESKTOP, DISTRIBUTION, FULL, LOCAL, NVIDIA, OPEN, PRECOMPILED, System, Wanted

EL, FEDORA, AMAZON, AZURE = "el", "fedora", "amazon", "azure"

#: The open modules as distributions sign them, by id.
SIGNED = {
    "rhel": ("kmod-nvidia-open", "RHEL's extensions or supplementary repository has it"),
    "almalinux": ("nvidia-open-kmod", "AlmaLinux signs it"),
    "rocky": ("kmod-nvidia-dc-open-latest", "CIQ's repository for Rocky Linux has it"),
}
_OPEN_DKMS, _PROPRIETARY_DKMS = "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms"
_FUSION = ("akmod-nvidia*", "xorg-x11-drv-nvidia*")
_NVIDIA_BUILT = ("kmod-nvidia-[0-9]*", "kmod-nvidia-open-[0-9]*")
_DESKTOP = ("nvidia-driver", "nvidia-driver-libs")
RESET_NOTE = "Another stream is chosen by dnf module reset nvidia-driver, then enable, then distro-sync."
LOCK_NOTE = (
    "There are no module streams: the locks are set before the first installation, so that it stays on the branch."
)
NEWEST_NOTE = (
    "kernel-devel-matched follows the newest kernel: where an older one runs, its own headers are named instead."
)
KEY_NOTE = (
    "NVIDIA's precompiled modules are signed with NVIDIA's key: Secure Boot takes them once the key is enrolled (MOK)."
)


def rpm(system: System, wanted: Wanted, kind: str) -> PackageSet:
    """A set for EL, Fedora, Amazon Linux or Azure Linux, as ``kind`` says."""
    modular = (kind == AMAZON or (kind == EL and major(system) < 10)) and wanted.source != DISTRIBUTION
    signed = wanted.source == DISTRIBUTION and kind in (EL, AZURE)
    build = not signed and wanted.source != PRECOMPILED
    kernel = _kernel(system, wanted, kind)
    packages = [*kernel, *_user(wanted), *companions(system, wanted)]
    packages += _prerequisites(system, kind, build)
    packages += _headers(system, kind) if build else []
    return PackageSet(
        packages=tuple(packages),
        stream=_stream(wanted) if modular else "",
        holds=tuple(one.name for one in packages if one.exact),
        leaves=(*_leaves(wanted, {one.name for one in kernel}), *companions_leave(system, wanted)),
        notes=_notes(system, wanted, kind, modular),
        repositories=_repositories(system, kind) if build else (),
        build=build,
    )


def major(system: System) -> int:
    return version_key(system.version)[0]


def plain_kernel(system: System) -> str:
    """The kernel's release without the architecture, as packages are versioned."""
    return system.kernel[: -len(system.arch) - 1] if system.kernel.endswith(f".{system.arch}") else system.kernel


def _stream(wanted: Wanted) -> str:
    if wanted.source == PRECOMPILED:
        return str(wanted.branch)
    return f"{wanted.branch}-open" if wanted.flavour == OPEN else f"{wanted.branch}-dkms"


def _kernel(system: System, wanted: Wanted, kind: str) -> List[Package]:
    common = exact(FIRMWARE, "nvidia-kmod-common")
    if wanted.source == DISTRIBUTION and kind != AMAZON:
        return [*exact(KERNEL, _signed(system, wanted, kind)), *common]
    if wanted.source != PRECOMPILED:
        return [*exact(KERNEL, _OPEN_DKMS if wanted.flavour == OPEN else _PROPRIETARY_DKMS), *common]
    if wanted.flavour == OPEN:
        message = "NVIDIA's precompiled streams are for the proprietary modules; choose source nvidia for the open ones"
        raise Refusal(
            "precompiled_not_made", message, "stream of a branch alone, 580: precompiled, proprietary [guide]"
        )
    if not wanted.version or not system.kernel:
        return common  # their names have version and kernel: the stream brings the one that fits
    return [*exact(KERNEL, f"kmod-nvidia-{wanted.version}-{plain_kernel(system)}"), *common]


def _signed(system: System, wanted: Wanted, kind: str) -> str:
    if wanted.flavour != OPEN:
        message = "distributions sign the open modules only; choose source nvidia for the proprietary ones"
        raise Refusal("signed_not_made", message, f"signed by the distribution: {system.id}, open modules [guide]")
    if kind == AZURE:
        hwe = bool(system.kernel) and version_key(system.kernel)[:2] > (6, 6)
        return "cuda-open-hwe" if hwe else "cuda-open"
    return SIGNED[system.id][0]


def _user(wanted: Wanted) -> List[Package]:
    use = FULL if wanted.use == COMPUTE and wanted.branch < COMPUTE_SINCE else wanted.use
    packages = exact(USER, "nvidia-modprobe")
    if use != DESKTOP:
        packages += exact(USER, "nvidia-persistenced", "nvidia-driver-cuda", "nvidia-driver-cuda-libs")
        if wanted.branch >= COMPUTE_SINCE:
            packages += exact(USER, "libnvidia-ml", "libnvidia-cfg")
    if use != COMPUTE:
        packages += exact(USER, *_DESKTOP)
    if use == FULL and wanted.source not in (DISTRIBUTION, PRECOMPILED):
        packages += exact(USER, "nvidia-open" if wanted.flavour == OPEN else "cuda-drivers")
    return packages


def _leaves(wanted: Wanted, kernel: set[str]) -> List[str]:
    known = (_OPEN_DKMS, _PROPRIETARY_DKMS, *(name for name, _where in SIGNED.values()), "cuda-open", "cuda-open-hwe")
    found = [name for name in known if name not in kernel]
    if wanted.source != PRECOMPILED:
        found += _NVIDIA_BUILT
    else:
        found.append("kmod-nvidia-open-[0-9]*")
    if wanted.source in (DISTRIBUTION, PRECOMPILED):
        found += ["nvidia-open", "cuda-drivers"]
    else:
        found.append("cuda-drivers" if wanted.flavour == OPEN else "nvidia-open")
    return [*found, *_FUSION]


def _prerequisites(system: System, kind: str, build: bool) -> List[Package]:
    names: List[str] = []
    if build:
        names += ["dkms", "elfutils-libelf-devel"]
    if kind == EL and major(system) == 10 and system.arch == "aarch64":
        names.append("unzboot")
    if kind != FEDORA:
        names.append("python3-dnf-plugin-versionlock")
    if kind == AMAZON and build:
        names.append(f"{_amazon_prefix(system)}-modules-extra")
    return loose(PREREQUISITE, *names)


def _headers(system: System, kind: str) -> List[Package]:
    if not system.kernel:
        return []
    if kind == AMAZON:
        return loose(HEADERS, f"{_amazon_prefix(system)}-devel-{system.kernel}")
    if kind == AZURE:
        return loose(HEADERS, f"kernel-devel-{plain_kernel(system)}", "kernel-headers")
    names = [f"kernel-devel-{system.kernel}"]
    names.append(f"kernel-headers-{system.kernel}" if kind == EL and major(system) == 8 else "kernel-headers")
    return loose(HEADERS, *names)


def _amazon_prefix(system: System) -> str:
    """Kernels beside the first one have names of their own: kernel6.12."""
    parts = version_key(system.kernel)[:2] if system.kernel else (6, 1)
    return "kernel" if parts == (6, 1) else f"kernel{parts[0]}.{parts[1]}"


def _repositories(system: System, kind: str) -> Tuple[str, ...]:
    if kind != EL:
        return ()
    number = major(system)
    names: Dict[str, str] = {
        "rhel": f"codeready-builder-for-rhel-{number}-{system.arch}-rpms",
        "ol": f"ol{number}_codeready_builder",
    }
    return ("epel", names.get(system.id, "powertools" if number == 8 else "crb"))


def _notes(system: System, wanted: Wanted, kind: str, modular: bool) -> Tuple[str, ...]:
    found: List[str] = []
    if wanted.source == PRECOMPILED:
        found.append(KEY_NOTE)
    elif wanted.source == DISTRIBUTION and kind == EL:
        found.append(f"{SIGNED[system.id][1]}: it loads under Secure Boot.")
    elif wanted.source == DISTRIBUTION and kind == AMAZON:
        found.append("Amazon's own repository is enabled by the package nvidia-release, which comes first.")
    else:
        found.append(BUILD_NOTE)
    found.append(RESET_NOTE if modular else LOCK_NOTE)
    if kind == EL and major(system) > 8 and wanted.source in (NVIDIA, LOCAL):
        found.append(NEWEST_NOTE)
    if wanted.use == COMPUTE and wanted.branch < COMPUTE_SINCE:
        found.append(WHOLE_NOTE)
    return tuple(found)


# -- SUSE ----------------------------------------------------------------------------------------------------------

_LAST_G06, _FIRST_G07 = 580, 595
SUSE_NOTES = (
    "After a kernel module package the initramfs is built anew (dracut -f).",
    "Users of GPUs have to be in the group video.",
)


def suse(system: System, wanted: Wanted) -> PackageSet:
    generation = _generation(wanted)
    build = wanted.source != PRECOMPILED
    kernel = f"nvidia-{'open-' if wanted.flavour == OPEN else ''}driver-{generation}"
    if not build:
        kernel = _kmp(system, wanted, generation)
    user = [f"nvidia-compute-{generation}", f"nvidia-compute-utils-{generation}"]
    if wanted.use != COMPUTE:
        user.append("nvidia-open" if wanted.flavour == OPEN else "cuda-drivers")
    packages = [*exact(KERNEL, kernel), *exact(USER, *user), *companions(system, wanted)]
    if build and system.kernel:
        version, variant = _suse_kernel(system)
        packages += loose(HEADERS, f"kernel-{variant}-devel={version}")
    other = "G07" if generation == "G06" else "G06"
    wrong = f"nvidia-{'' if wanted.flavour == OPEN else 'open-'}driver-{generation}"
    return PackageSet(
        packages=tuple(packages),
        holds=tuple(one.name for one in packages if one.exact),
        leaves=(
            *(f"{wrong}*", f"nvidia-*-{other}*", f"x11-video-nvidia{other}"),
            *((f"nvidia-open-driver-{generation}-signed-*",) if build else (f"nvidia-open-driver-{generation}",)),
            "cuda-drivers" if wanted.flavour == OPEN else "nvidia-open",
            *companions_leave(system, wanted),
        ),
        notes=SUSE_NOTES,
        repositories=("PackageHub",),
        build=build,
    )


def _generation(wanted: Wanted) -> str:
    if wanted.branch <= _LAST_G06:
        return "G06"
    if wanted.branch >= _FIRST_G07:
        return "G07"
    message = f"SUSE has no packages of branch {wanted.branch}: G06 is up to {_LAST_G06}, G07 from {_FIRST_G07} on"
    raise Refusal(
        "branch_not_made", message, f"SUSE: G06 up to {_LAST_G06}, G07 from {_FIRST_G07} on (Turing+) [guide]"
    )


def _kmp(system: System, wanted: Wanted, generation: str) -> str:
    if wanted.flavour != OPEN:
        message = "SUSE signs the open modules only; choose source nvidia for the proprietary ones"
        raise Refusal("signed_not_made", message, "SUSE: nvidia-open-driver-G06-signed-cuda-kmp [guide]")
    variant = _suse_kernel(system)[1] if system.kernel else "default"
    return f"nvidia-open-driver-{generation}-signed-cuda-kmp-{variant}"


def _suse_kernel(system: System) -> Tuple[str, str]:
    """6.4.0-150600.23.25-default -> version, variant."""
    version, dash, variant = system.kernel.rpartition("-")
    return (version, variant) if dash and not variant[:1].isdigit() else (system.kernel, "default")
