# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One package, as a .deb and as what rpmbuild makes it from. What was made once is kept in the cache by its content."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError, cache_dir

#: A file's content, or a file of this machine that has it; and its mode.
Content = tuple["bytes | Path", int]


@dataclass(frozen=True)
class Package:
    """A package in both worlds. ``version`` is without epoch and release, ``depends`` holds (name, relation, version),
    the last two "" for any version.

    ``conflicts``: names that may not be installed beside it; ``files``: path -> content; ``config``: those of them that
    an upgrade leaves as they are; ``after``: a script that runs when it was installed, ``before_removal`` one that runs
    before it goes for good, ``leaving`` one that runs before another version takes its place, too.
    """

    name: str
    version: str
    release: str = "1"
    depends: tuple[tuple[str, str, str], ...] = ()
    provides: tuple[str, ...] = ()
    files: dict[str, Content] = field(default_factory=dict)
    config: tuple[str, ...] = ()
    after: str = ""
    before_removal: str = ""
    epoch: str = ""
    conflicts: tuple[str, ...] = ()
    leaving: str = ""

    @property
    def full(self) -> str:
        return f"{self.version}-{self.release}"

    @property
    def file(self) -> str:
        """Its file's name without the architecture."""
        return f"{self.name}_{self.full}"

    def key(self) -> str:
        """What it is made from, as 16 hexadecimal digits."""
        parts = (self.name, self.full, self.depends, self.provides, self.config, self.after, self.before_removal)
        more = (self.epoch, self.conflicts, self.leaving)
        digest = hashlib.sha256(repr((*parts, *(more if any(more) else ()), RECIPE)).encode())
        for path, (content, mode) in sorted(self.files.items()):
            data = content.read_bytes() if isinstance(content, Path) else content
            digest.update(f"{path}\0{mode}\0{len(data)}\0".encode() + data)
        return digest.hexdigest()[:16]

    def unpack(self, folder: Path) -> None:
        """Its files below a folder."""
        folder.mkdir(parents=True)
        for path, (content, mode) in self.files.items():
            place = folder / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.read_bytes() if isinstance(content, Path) else content)
            place.chmod(mode)


RECIPE = 2  # one more whenever what is written below changes
MAINTAINER = "testbed <testbed@example.com>"


def cached() -> Path:
    folder = cache_dir() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def deb(package: Package) -> Path:
    """The package as a file of the cache, made first where it is not there."""
    target = cached() / f"{package.file}_amd64-{package.key()}.deb"
    if not target.exists():
        with tempfile.NamedTemporaryFile(prefix=".build-", dir=cached(), delete=False) as made:
            made.write(_ar({"debian-binary": b"2.0\n", **_members(package)}))
        Path(made.name).chmod(0o644)
        Path(made.name).rename(target)
    return target


def control(package: Package) -> str:
    """What dpkg and apt read of it."""
    needs = ", ".join(f"{name} ({sign} {version})" if sign else name for name, sign, version in package.depends)
    lines = [
        f"Package: {package.name}",
        f"Version: {package.epoch}{':' if package.epoch else ''}{package.full}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        *([f"Depends: {needs}"] if needs else []),
        *([f"Provides: {', '.join(package.provides)}"] if package.provides else []),
        *([f"Conflicts: {', '.join(package.conflicts)}"] if package.conflicts else []),
        "Description: made by the testbed",
    ]
    return "\n".join(lines) + "\n"


def _members(package: Package) -> dict[str, bytes]:
    """Control and data of a .deb: a hundred of them are made in the time that dpkg-deb takes for a few."""
    last = f'[ "$1" = remove ] || exit 0\n{package.before_removal}' if package.before_removal else ""
    after = package.after and f'[ "$1" = configure ] || exit 0\n{package.after}'
    own: dict[str, Content] = {"control": (control(package).encode(), 0o644)}
    if package.config:
        own["conffiles"] = ("".join(f"{path}\n" for path in package.config).encode(), 0o644)
    for name, text in (("postinst", after), ("prerm", package.leaving + last)):
        if text:
            own[name] = (f"#!/bin/sh\nset -e\n{text}".encode(), 0o755)
    return {"control.tar.gz": _tar(own), "data.tar.gz": _tar(package.files)}


def _tar(files: Mapping[str, Content]) -> bytes:
    """Files and the folders above them, all of root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        folders = {folder for path in files for folder in PurePosixPath(path.lstrip("/")).parents}
        for folder in sorted(folders):
            member = tarfile.TarInfo("./" if str(folder) == "." else f"./{folder}/")
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for path, (content, mode) in files.items():
            data = content.read_bytes() if isinstance(content, Path) else content
            member = tarfile.TarInfo(f"./{path.lstrip('/')}")
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def _ar(members: Mapping[str, bytes]) -> bytes:
    parts = [b"!<arch>\n"]
    for name, data in members.items():
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode())
        parts.append(data + b"\n" * (len(data) % 2))
    return b"".join(parts)


def spec(package: Package, folder: str) -> str:
    """What rpmbuild makes it from; its files lie below ``folder``, in one named as the package."""
    signs = {"<<": "<", ">>": ">"}
    needs = [f"Requires: {name} {signs.get(sign, sign)} {version}".rstrip() for name, sign, version in package.depends]
    files = [f"%config(noreplace) {path}" if path in package.config else path for path in package.files]
    going = package.leaving + (f'[ "$1" = 0 ] || exit 0\n{package.before_removal}' if package.before_removal else "")
    sections = [("%post", package.after), ("%preun", going)]
    lines = [
        f"Name: {package.name}",
        f"Version: {package.version}",
        f"Release: {package.release}",
        *([f"Epoch: {package.epoch}"] if package.epoch else []),
        "Summary: made by the testbed",
        "License: none",
        "AutoReqProv: no",
        *needs,
        *(f"Provides: {name}" for name in package.provides),
        *(f"Conflicts: {name}" for name in package.conflicts),
        "%description",
        "Made by the testbed.",
        "%install",
        f"cp -a {folder}/. %{{buildroot}}/",
        *(line for name, text in sections if text for line in (name, text.rstrip("\n"))),
        "%files",
        "%defattr(-,root,root)",
        *files,
    ]
    return "\n".join(lines) + "\n"


def call(command: Iterable[str | Path], **more: str) -> str:
    """Run a program; ``ProgramError`` with its words where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **more)
    if done.returncode:
        raise ProgramError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout
