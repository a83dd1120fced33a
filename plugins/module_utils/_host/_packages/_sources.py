# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories as files of a host: what a URL and a key must look like, which files differ, and how they get there."""

from __future__ import annotations

import base64
import binascii
import os
import re
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from ..._plan import ERROR, WARNING, Failure, Finding
from .._files import Files
from .._journal import Journal
from ._shared import Manager

FOLDERS = {"apt": "/etc/apt/sources.list.d", "dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}
TRUSTED = "key "  # notes of the journal: a key that the repository's own file had the package manager trust
_URL = re.compile(r"(https?|file)://?[^\s\"'{}\[\]\\|<>]+\Z")
_PROXY = re.compile(r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?/?\Z")
_FILE = re.compile(r"/[A-Za-z0-9._/+-]+\Z")
_PATH = re.compile(r"[A-Za-z0-9$()._~/-]+\Z")
_ARMOR = re.compile(
    r"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+: [^\r\n]*\r?\n)*\r?\n(.*?)\r?\n-----END PGP", re.DOTALL
)


@dataclass(frozen=True)
class Place:
    """Where packages come from. Without ``url`` the host's own repositories are used as they are.

    ``path`` is the part below the URL, where a mirror has another than NVIDIA's; ``key`` the public key, in letters or
    bytes (of the host's file ``key_file``, or as it was given). ``proxy``: by which the host reaches it; ``ca_file``:
    certificates of the host's that it is trusted by, as those of a proxy that looks inside.
    """

    url: str = ""
    path: str = ""
    key: str = ""
    key_file: str = ""
    proxy: str = ""
    ca_file: str = ""


@dataclass(frozen=True)
class Source:
    """A repository as files: the list or repo file with ``{key}`` for the key's path, and the key.

    ``others``: more files that belong to it, or are in its way (None: to be removed). ``settings``: what apt has to
    know of the way there, which one of these files has.
    """

    path: str
    text: str
    key_path: str
    key: bytes
    others: Mapping[str, Optional[str]] = field(default_factory=dict)
    settings: str = ""

    @property
    def name(self) -> str:
        """What ``Manager.refresh`` calls it: the file's name without the usual ending (``.sources`` stays)."""
        name = os.path.basename(self.path)
        base, _dot, ending = name.rpartition(".")
        return base if ending in ("list", "repo") else name

    def files(self) -> Dict[str, Optional[str]]:
        """Path -> text, the key first."""
        found: Dict[str, Optional[str]] = dict(self.others)
        if self.key:
            found[self.key_path] = self.key.decode("utf-8", "surrogateescape")
        return {**found, self.path: self.text.replace("{key}", self.key_path)}


def wrong(wanted: Place, manager: str, files: Files) -> List[Finding]:
    """What is wrong with a URL and a path, and with the way there."""
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
    if wanted.proxy and not _PROXY.match(wanted.proxy):
        # The words of the user are not told: a password may be among them.
        detail = "is no proxy; allowed are addresses like http://proxy.example.com:3128, without a user"
        found.append(Finding("repository_proxy", ERROR, detail, path="repository.proxy"))
    return [*found, *_wrong_ca(wanted.ca_file, manager, files)]


def _wrong_ca(path: str, manager: str, files: Files) -> List[Finding]:
    if not path:
        return []
    if manager == "zypper":
        detail = "zypper trusts what the host trusts, and no file for one repository"
        remedy = "Put the certificate to /etc/pki/trust/anchors and run update-ca-certificates, and leave ca_file out"
        return [Finding("repository_ca", ERROR, detail, path="repository.ca_file", remedy=remedy)]
    try:
        content = files.read(path) if _FILE.match(path) else None
    except Failure:
        content = None
    if content is None or b"-----BEGIN CERTIFICATE-----" not in content:
        detail = f"{path} is no file of certificates in letters on this host"
        return [Finding("repository_ca", ERROR, detail, path="repository.ca_file", remedy="Put it there first")]
    return []


def apt_way(wanted: Place) -> str:
    """apt's settings for the way to a repository, for its host alone; "" where it needs none."""
    parts = urlsplit(wanted.url)
    lines = [f'Acquire::{parts.scheme}::Proxy::{parts.hostname} "{wanted.proxy}";'] if wanted.proxy else []
    lines += [f'Acquire::https::{parts.hostname}::CaInfo "{wanted.ca_file}";'] if wanted.ca_file else []
    return "".join(f"{line}\n" for line in lines) if parts.hostname else ""


def apt_way_files(wanted: Place, name: str, files: Files) -> Dict[str, Optional[str]]:
    """The file that has them; None where it is there and not needed any more."""
    path = f"/etc/apt/apt.conf.d/90gpufleet-{name}"
    text = apt_way(wanted)
    return {path: text or None} if text or files.exists(path) else {}


def key_of(wanted: Place, manager: str, files: Files, accept: Sequence[str]) -> Tuple[bytes, List[Finding]]:
    """The key as the package manager wants it: bytes for apt, letters for rpm's."""
    path = "repository.key"
    given = wanted.key.encode("utf-8", "surrogateescape")
    if wanted.key_file:
        path = "repository.key_file"
        try:
            content = files.read(wanted.key_file)
        except Failure:  # its advice is for files that are in the way
            detail = f"{wanted.key_file} cannot be read as a file on this host"
            return b"", [Finding("repository_key", ERROR, detail, path=path, remedy="Give the path of a key's file")]
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


def rpm_section(
    name: str, url: str, manager: str, *, metadata: bool, packages: bool, proxy: str = "", ca_file: str = ""
) -> str:
    """A section of a repo file; ``metadata`` and ``packages``: whether signatures of these are asked for."""
    if proxy and manager == "zypper":  # which reads it out of the address
        parts = urlsplit(proxy)
        url = f"{url}?proxy={parts.hostname}&proxyport={parts.port or 80}"
    lines = [
        f"[{name}]",
        f"name={name}",
        f"baseurl={url}",
        "enabled=1",
        f"repo_gpgcheck={int(metadata)}",
        f"gpgcheck={int(packages)}",
        *(["gpgkey=file://{key}"] if metadata or packages else []),
        *([f"proxy={proxy}"] if proxy and manager != "zypper" else []),
        *([f"sslcacert={ca_file}"] if ca_file else []),
        *(["autorefresh=0", "type=rpm-md"] if manager == "zypper" else []),
    ]
    return "\n".join(lines) + "\n"


def differing(
    wanted: Mapping[str, Optional[str]], files: Files
) -> Tuple[Dict[str, Optional[str]], Dict[str, Optional[str]]]:
    """Of the files that a repository wants (None: none there): those to write or remove, and the text all have now."""
    before = {path: files.text(path) for path in wanted}
    return {path: text for path, text in wanted.items() if before[path] != text}, before


def set_up(changed: Mapping[str, Optional[str]], name: str, manager: Manager, journal: Journal) -> None:
    """Write files of a repository, through the journal, and read the repository; nothing where nothing is to change.

    Keys that the package manager trusts since then are noted. Raises ``Failure`` where it cannot be read.
    """
    for path, text in changed.items():
        if text is None:
            journal.remove(path)
        else:
            journal.make_folder(path.rpartition("/")[0])
            journal.write(path, text)
    if not changed:
        return
    known = manager.trusted()
    try:
        manager.refresh(name)
    except Failure:
        manager.distrust([key for key in manager.trusted() if key not in known])
        raise
    for key in manager.trusted():
        if key not in known:
            journal.note(TRUSTED + key, "")


def distrust_again(manager: Manager, journal: Journal) -> None:
    """Take back the trust in keys that ``set_up`` noted."""
    manager.distrust([key[len(TRUSTED) :] for key in journal.notes() if key.startswith(TRUSTED)])
