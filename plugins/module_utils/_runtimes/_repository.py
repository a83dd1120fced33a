# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of the toolkit's packages: its files on a host, and old ones that are in their way."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from .._host._files import Files
from .._plan import ERROR, WARNING, Finding

NAME = "nvidia-container-toolkit"  # of the list file, and the repository's id
_KEYS = {
    "apt": "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg",
    "dnf": "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit",
    "zypper": "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-container-toolkit",
}
_FOLDERS = {"apt": "/etc/apt/sources.list.d", "dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}
#: Earlier names of NVIDIA's own files. With one of them apt finds two keys for one repository, and reads nothing.
_OLD = ("libnvidia-container", "nvidia-container-runtime", "nvidia-docker")
_URL = re.compile(r"(https?|file)://?[^\s\"'{}\[\]\\|<>]+\Z")
_PATH = re.compile(r"[A-Za-z0-9$()._~/-]+\Z")
_ARMOR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+: [^\r\n]*\r?\n)*\r?\n(.*?)\r?\n-----END PGP", re.DOTALL
)


@dataclass(frozen=True)
class Repository:
    """Where the packages come from. Without ``url`` the host's own repositories are used as they are.

    ``path`` is the part below the URL, where a mirror has another than NVIDIA's; ``key`` the public key, in letters or
    bytes (of the host's file ``key_file``, or as it was given).
    """

    url: str = ""
    path: str = ""
    key: str = ""
    key_file: str = ""
    experimental: bool = False


@dataclass(frozen=True)
class Source:
    """A repository as files: the list or repo file with ``{key}`` for the key's path, and the key."""

    path: str
    text: str
    key_path: str
    key: bytes

    def files(self) -> Dict[str, str]:
        """Path -> text, the key first."""
        found = {self.key_path: self.key.decode("utf-8", "surrogateescape")} if self.key else {}
        return {**found, self.path: self.text.replace("{key}", self.key_path)}


def source(
    wanted: Repository, manager: str, files: Files, accept: Sequence[str]
) -> Tuple[Optional[Source], List[Finding]]:
    """The files that a host should have for the repository; none without a URL, or where something is wrong with it."""
    if not wanted.url:
        return None, []
    found = _wrong(wanted)
    key, more = _key(wanted, manager, files, accept)
    found += more
    if [one for one in found if one.severity == ERROR]:
        return None, found
    text = _apt(wanted, bool(key)) if manager == "apt" else _rpm(wanted, manager, bool(key))
    ending = "list" if manager == "apt" else "repo"
    return Source(f"{_FOLDERS[manager]}/{NAME}.{ending}", text, _KEYS[manager], key), found


def old_lists(manager: str, files: Files) -> List[str]:
    """Files of NVIDIA's earlier repositories that are there."""
    endings = ("list", "sources") if manager == "apt" else ("repo",)
    paths = [f"{_FOLDERS[manager]}/{name}.{ending}" for name in _OLD for ending in endings]
    return [path for path in paths if files.exists(path)]


def _wrong(wanted: Repository) -> List[Finding]:
    found = []
    if not _URL.match(wanted.url):
        detail = f"{wanted.url!r} is no URL that a repository can have; allowed are http, https and file"
        found.append(Finding("repository_url", ERROR, detail, path="repository.url"))
    elif "@" in urlsplit(wanted.url).netloc:
        found.append(
            Finding(
                "repository_url", ERROR, "has a user or a password in it, which every user of the host could read",
                path="repository.url", remedy="Put them into /etc/apt/auth.conf.d or the package manager's own file",
            )
        )  # fmt: skip
    if wanted.path and not _PATH.match(wanted.path):
        detail = f"{wanted.path!r} is no path below a URL"
        found.append(Finding("repository_path", ERROR, detail, path="repository.path"))
    return found


def _key(wanted: Repository, manager: str, files: Files, accept: Sequence[str]) -> Tuple[bytes, List[Finding]]:
    """The key as the package manager wants it: bytes for apt, letters for rpm's."""
    path = "repository.key"
    given = wanted.key.encode("utf-8", "surrogateescape")
    if wanted.key_file:
        path = "repository.key_file"
        content = files.read(wanted.key_file)
        if content is None:
            return b"", [Finding("repository_key", ERROR, f"{wanted.key_file} is not on this host", path=path)]
        given = content
    if not given:
        detail = "is not given, so nobody could tell whether packages were exchanged on their way"
        taken = "unsigned_repository" in accept
        remedy = "" if taken else "Give the key that the repository publishes"
        severity = WARNING if taken else ERROR
        return b"", [
            Finding("repository_key", severity, detail, path=path, remedy=remedy, accept="unsigned_repository")
        ]
    raw = dearmored(given)
    if raw is None or (manager != "apt" and raw == given):
        detail = "is no public key of OpenPGP in letters (-----BEGIN PGP PUBLIC KEY BLOCK-----)"
        return b"", [Finding("repository_key", ERROR, detail, path=path)]
    return (raw if manager == "apt" else given.rstrip() + b"\n"), []


def dearmored(key: bytes) -> Optional[bytes]:
    """The keys' bytes from letters (several blocks are joined); bytes of a key stay as they are. None: no key."""
    text = key.decode("ascii", "replace")
    parts = []
    for block in _ARMOR.findall(text):
        lines = [line.strip() for line in block.splitlines()]
        body = "".join(line for line in lines if not line.startswith("="))
        try:
            parts.append(base64.b64decode(body, validate=True))
        except binascii.Error:
            return None
    raw = b"".join(parts) if parts else key
    # A public key begins with its own packet: tag 6, in the old form or the new one.
    return raw if raw[:1] and (raw[0] & 0xFC == 0x98 or raw[0] == 0xC6) else None


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
        lines = [
            f"[{name}]",
            f"name={name}",
            f"baseurl={wanted.url.rstrip('/')}/{path}",
            "enabled=1",
            f"repo_gpgcheck={int(signed)}",
            "gpgcheck=0",
            *(["gpgkey=file://{key}"] if signed else []),
            *(["autorefresh=0", "type=rpm-md"] if manager == "zypper" else []),
        ]
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)
