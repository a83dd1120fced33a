# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's repository of driver packages, a mirror of it, or its local form, as files of a host.

found, findings = source(Repository(url="https://mirror.example.com/cuda", key_file="/srv/key.asc"), system, files)
changed, before = differing(found.files(), files)
set_up(changed, found.name, manager, journal)
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from .._host._files import Files
from .._host._packages._sources import (
    FOLDERS,
    Place,
    Source,
    apt_way,
    apt_way_files,
    dearmored,
    key_of,
    rpm_section,
    wrong,
)
from .._plan import ERROR, Finding
from ._keys import without
from ._types import System

#: The key that NVIDIA's apt repository was signed with until 2022. With it apt may stop over two keys for one source.
RETIRED = ("7FA2AF80",)
LOCAL = "nvidia-driver-local-repo-"  # folders of the local form are /var/ and this, distribution, version
_KEYRINGS = "/usr/share/keyrings"
_RPM_KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-cuda"
_PREFERENCE = "/etc/apt/preferences.d/cuda-repository-pin-600"
_TRUSTED = "/etc/apt/trusted.gpg"
#: NVIDIA's folders for what /etc/os-release says; versions as fnmatch patterns.
_DIRECTORIES: Tuple[Tuple[str, str, str], ...] = (
    ("ubuntu", "22.04", "ubuntu2204"),
    ("ubuntu", "24.04", "ubuntu2404"),
    ("ubuntu", "26.04", "ubuntu2604"),
    ("debian", "12", "debian12"),
    ("debian", "13", "debian13"),
    ("rhel", "8*", "rhel8"),
    ("rhel", "9*", "rhel9"),
    ("rhel", "10*", "rhel10"),
    ("fedora", "*", "fedora{version}"),
    ("amzn", "2023*", "amzn2023"),
    ("azurelinux", "3*", "azl3"),
    ("sles", "15*", "sles15"),
    ("sles", "16*", "suse16"),
    ("opensuse-leap", "15*", "opensuse15"),
    ("opensuse-leap", "16*", "suse16"),
)
_RHEL = ("rhel", "rocky", "almalinux", "centos", "ol")  # one repository serves them all
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
_ONE_LINE = re.compile(r"^\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s*)?(\S+)")


@dataclass(frozen=True)
class Repository(Place):
    """``Place`` of the driver's packages; ``url`` is what NVIDIA's folders for the distributions lie below.

    ``form``: list or deb822, for apt. ``folder``: of the local form (``/var/nvidia-driver-local-repo-...``), instead
    of a URL; its key lies in it. ``signed``: what of dnf's and zypper's is signed, packages (as NVIDIA's are, on a
    mirror too) or metadata.
    """

    form: str = "list"
    folder: str = ""
    signed: str = "packages"


def directory(system: System) -> str:
    """NVIDIA's folder for a system (``ubuntu2404/x86_64``); "" where it publishes none."""
    id = "rhel" if system.id in _RHEL or ("rhel" in system.like and system.id not in ("fedora", "amzn")) else system.id
    arch = _ARCHITECTURES.get(system.arch)
    for name, versions, folder in _DIRECTORIES:
        if arch and name == id and _is(system.version, versions):
            return f"{folder.format(version=system.version)}/{arch}"
    return ""


def _is(version: str, pattern: str) -> bool:
    """``9*`` is 9 and 9.4, and not 90."""
    if not pattern.endswith("*") or pattern == "*":
        return fnmatch.fnmatchcase(version, pattern)
    return version == pattern[:-1] or version.startswith(f"{pattern[:-1]}.")


def source(
    wanted: Repository, system: System, files: Files, accept: Sequence[str] = (), retired: Sequence[str] = RETIRED
) -> Tuple[Optional[Source], List[Finding]]:
    """The files that a host should have; none where nothing is wanted, or something is wrong with it.

    Other entries of the same repository are among ``Source.others``, without it, and so are keyrings that hold a
    retired key: one repository has one entry, with one key.
    """
    if wanted.folder:
        return _local(wanted, system, files)
    if not wanted.url:
        given = [name for name in ("path", "key", "key_file") if getattr(wanted, name)]
        if not given:
            return None, []
        detail = f"has {', '.join(given)} and neither url nor folder, so nobody could tell where packages come from"
        return None, [Finding("repository_url", ERROR, detail, path="repository", remedy="Give one of the two")]
    found = wrong(wanted, system.family, files)
    path = wanted.path.strip("/") or directory(system)
    if not path:
        detail = f"NVIDIA publishes no driver packages for {system.id} {system.version} on {system.arch}"
        remedy = "Give the path of a mirror's folder, or take the distribution's own packages"
        found.append(Finding("repository_system", ERROR, detail, path="repository.path", remedy=remedy))
    key, more = key_of(wanted, system.family, files, accept)
    found += more
    if [one for one in found if one.severity == ERROR]:
        return None, found
    url = f"{wanted.url.rstrip('/')}/{path}"
    name = f"cuda-{path.replace('/', '-')}"
    made = _apt(wanted, url, name, key) if system.family == "apt" else _rpm(wanted, url, name, key, system.family)
    if system.family != "apt":
        return made, found
    others, mixed = _others(made, url, files, retired)
    if mixed:
        return None, [*found, *mixed]
    others.update(apt_way_files(wanted, name, files))
    return Source(made.path, made.text, made.key_path, made.key, others, apt_way(wanted)), found


def _apt(wanted: Repository, url: str, name: str, key: bytes) -> Source:
    """A flat repository, so its suite is a path."""
    keyring = f"{_KEYRINGS}/cuda-archive-keyring.gpg"
    if wanted.form == "deb822":
        option = "Signed-By: {key}" if key else "Trusted: yes"
        text = f"Types: deb\nURIs: {url}/\nSuites: /\n{option}\n"
        return Source(f"{FOLDERS['apt']}/{name}.sources", text, keyring, key)
    option = "signed-by={key}" if key else "trusted=yes"
    return Source(f"{FOLDERS['apt']}/{name}.list", f"deb [{option}] {url}/ /\n", keyring, key)


def _rpm(wanted: Repository, url: str, name: str, key: bytes, manager: str) -> Source:
    metadata, packages = bool(key) and wanted.signed == "metadata", bool(key) and wanted.signed == "packages"
    way = {"proxy": wanted.proxy, "ca_file": wanted.ca_file}
    text = rpm_section(name, url, manager, metadata=metadata, packages=packages, **way)
    return Source(f"{FOLDERS[manager]}/{name}.repo", text, _RPM_KEY, key)


# --- What stands in the way of an apt repository ----------------------------------------------------------------------


def _others(
    made: Source, url: str, files: Files, retired: Sequence[str]
) -> Tuple[Dict[str, Optional[str]], List[Finding]]:
    """The preference, and files of before: other entries of the repository, keyrings with a key that is retired.

    An entry that names other URLs beside is somebody's own: a finding, since apt stops over two keys for one URL.
    """
    preferred = preference(url)
    found: Dict[str, Optional[str]] = {_PREFERENCE: preferred} if preferred else {}
    findings = []
    folder = FOLDERS["apt"]
    paths = [f"{folder}/{name}" for name in _names(folder, files) if name.endswith((".list", ".sources"))]
    for path in ["/etc/apt/sources.list", *paths]:
        text = files.text(path) if path != made.path and os.path.isfile(files.root.at(path)) else None
        if text is None:
            continue
        left, mixed = _without_entries(text, url, path.endswith(".sources"))
        if left != text:
            found[path] = left if left.strip() or path == "/etc/apt/sources.list" else None
        if mixed:
            detail = f"{path} has an entry of {url} and of other URLs at once; apt would stop over two keys for one URL"
            remedy = "Take this URL out of the entry, then run again"
            findings.append(Finding("repository_mixed", ERROR, detail, path="repository.url", remedy=remedy))
    keyrings = [f"{_TRUSTED}.d/{name}" for name in _names(f"{_TRUSTED}.d", files) if name.endswith((".gpg", ".asc"))]
    for path in [_TRUSTED, *keyrings]:
        keyring = files.read(path)
        raw = dearmored(keyring) if keyring else None
        left_keys = without(raw, retired) if raw else raw
        if left_keys != raw and left_keys is not None:
            found[path] = left_keys.decode("utf-8", "surrogateescape") if left_keys else None
            if path.endswith(".asc") and left_keys:  # bytes would not be read under that name
                found[path] = None
                found[f"{path[:-4]}.gpg"] = left_keys.decode("utf-8", "surrogateescape")
    return found, findings


def preference(url: str) -> str:
    """NVIDIA's packages go before those of the same name in the distribution, as its own package has it.

    "" for folders: their origin is "", which is that of every folder of the host.
    """
    host = urlsplit(url).hostname
    return f'Package: *\nPin: origin "{host}"\nPin-Priority: 600\n' if host else ""


def _without_entries(text: str, url: str, deb822: bool) -> Tuple[str, bool]:
    """A list or deb822 file without the entries of one URL, all else as it is; whether one has other URLs beside."""
    parts = re.split(r"(?<=\n)(?=[ \t]*\n)", text) if deb822 else text.splitlines(keepends=True)
    kept, mixed = [], False
    for part in parts:
        same = [_same(one, url) for one in (_urls(part) if deb822 else _ONE_LINE.findall(part))]
        if not same or not all(same):
            kept.append(part)
            mixed = mixed or any(same)
    return "".join(kept), mixed


def _urls(stanza: str) -> List[str]:
    """URLs of a deb822 stanza: words of the field and of the lines that continue it. Comments are no part of it."""
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    field = re.search(r"^URIs[ \t]*:(.*(?:\n[ \t].*)*)", "\n".join(lines), re.MULTILINE | re.IGNORECASE)
    return field.group(1).split() if field else []


def _same(one: str, other: str) -> bool:
    """``file:/srv`` and ``file:///srv/`` are the same."""
    plain = [re.sub(r"^file:/+", "file:/", url).rstrip("/") for url in (one, other)]
    return plain[0] == plain[1]


def _names(folder: str, files: Files) -> List[str]:
    real = files.root.at(folder)
    return sorted(os.listdir(real)) if os.path.isdir(real) else []


# --- The local form ---------------------------------------------------------------------------------------------------


def local_folders(files: Files) -> List[str]:
    """Folders that NVIDIA's local repository packages brought."""
    return [f"/var/{name}" for name in _names("/var", files) if name.startswith(LOCAL)]


def _local(wanted: Repository, system: System, files: Files) -> Tuple[Optional[Source], List[Finding]]:
    """The package brings folder and list, and leaves its key in the folder, where apt may not look for it."""
    folder = wanted.folder.rstrip("/")
    names = _names(folder, files)
    if not names:
        there = ", ".join(local_folders(files)) or "none"
        detail = f"{folder} is not on this host, or empty; folders of local repositories: {there}"
        remedy = "Install the package nvidia-driver-local-repo of the wanted version first"
        return None, [Finding("repository_folder", ERROR, detail, path="repository.folder", remedy=remedy)]
    ending = "-keyring.gpg" if system.family == "apt" else ".pub"
    keys = [name for name in names if name.endswith(ending)]
    content = files.read(f"{folder}/{keys[0]}") if len(keys) == 1 else None
    if not content or dearmored(content) is None:
        detail = f"{folder} has no key: one file *{ending} was looked for, and {len(keys)} found"
        remedy = "Install the package nvidia-driver-local-repo anew"
        return None, [Finding("repository_key", ERROR, detail, path="repository.folder", remedy=remedy)]
    name = os.path.basename(folder).replace(LOCAL, "nvidia-driver-local-", 1)
    return _local_source(name, f"file://{folder}", keys[0], content, system.family, files), []


def _local_source(name: str, url: str, key: str, content: bytes, manager: str, files: Files) -> Source:
    place = FOLDERS[manager]
    key_path = f"{_KEYRINGS}/{key}" if manager == "apt" else f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
    brought = _brought(place, url, files)
    if brought and manager != "apt":
        return Source(*brought, "", b"")  # it names the key in the folder
    if manager == "apt":
        path, text = brought or (f"{place}/{name}.list", f"deb [signed-by={{key}}] {url}/ /\n")
        return Source(path, text, key_path, dearmored(content) or b"")
    text = rpm_section(name, url, manager, metadata=False, packages=True)
    return Source(f"{place}/{name}.repo", text, key_path, content)


def _brought(place: str, url: str, files: Files) -> Optional[Tuple[str, str]]:
    """The file that the package brought for its folder, as it is."""
    for name in _names(place, files):
        text = files.text(f"{place}/{name}") or ""
        if name.endswith((".list", ".sources", ".repo")) and re.search(
            rf"{re.escape(url).replace('file:///', 'file:/+')}/?(\s|$)", text
        ):
            return f"{place}/{name}", text
    return None
