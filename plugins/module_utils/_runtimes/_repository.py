# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of the toolkit's packages: its files on a host, and old ones that are in their way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from .._host._files import Files
from .._host._packages._sources import FOLDERS, Place, Source, apt_way, apt_way_files, key_of, rpm_section, wrong
from .._plan import ERROR, Finding

NAME = "nvidia-container-toolkit"  # of the list file, and the repository's id
_KEYS = {
    "apt": "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg",
    "dnf": "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit",
    "zypper": "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit",
}
#: Earlier names of NVIDIA's own files. With one of them apt finds two keys for one repository, and reads nothing.
_OLD = ("libnvidia-container", "nvidia-container-runtime", "nvidia-docker")


@dataclass(frozen=True)
class Repository(Place):
    """``Place`` of the toolkit's packages; ``experimental``: those too that NVIDIA calls so."""

    experimental: bool = False


def source(
    wanted: Repository, manager: str, files: Files, accept: Sequence[str]
) -> Tuple[Optional[Source], List[Finding]]:
    """The files that a host should have for the repository; none without a URL, or where something is wrong with it."""
    if not wanted.url:
        return None, []
    found = wrong(wanted, manager, files)
    key, more = key_of(wanted, manager, files, accept)
    found += more
    if [one for one in found if one.severity == ERROR]:
        return None, found
    if manager != "apt":
        return Source(f"{FOLDERS[manager]}/{NAME}.repo", _rpm(wanted, manager, bool(key)), _KEYS[manager], key), found
    way = apt_way_files(wanted, NAME, files)
    path = f"{FOLDERS[manager]}/{NAME}.list"
    return Source(path, _apt(wanted, bool(key)), _KEYS[manager], key, way, apt_way(wanted)), found


def old_lists(manager: str, files: Files) -> List[str]:
    """Files of NVIDIA's earlier repositories that are there."""
    endings = ("list", "sources") if manager == "apt" else ("repo",)
    paths = [f"{FOLDERS[manager]}/{name}.{ending}" for name in _OLD for ending in endings]
    return [path for path in paths if files.exists(path)]


def _paths(wanted: Repository, usual: str) -> List[str]:
    """The paths below the URL, the stable one first."""
    if wanted.path:
        return [wanted.path.strip("/")]
    return [f"stable/{usual}", *([f"experimental/{usual}"] if wanted.experimental else [])]


def _apt(wanted: Repository, signed: bool) -> str:
    option = "signed-by={key}" if signed else "trusted=yes"
    url = wanted.url.rstrip("/")
    return "".join(f"deb [{option}] {url}/{path} /\n" for path in _paths(wanted, "deb/$(ARCH)"))


def _rpm(wanted: Repository, manager: str, signed: bool) -> str:
    sections = []
    for number, path in enumerate(_paths(wanted, "rpm/$basearch")):
        name = f"{NAME}-experimental" if number else NAME
        url = f"{wanted.url.rstrip('/')}/{path}"
        way = {"proxy": wanted.proxy, "ca_file": wanted.ca_file}
        sections.append(rpm_section(name, url, manager, metadata=signed, packages=False, **way))
    return "\n".join(sections)
