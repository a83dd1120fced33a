# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One package, and how dpkg-deb and rpmbuild make it. What was made once is kept in the cache by its content."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError, cache_dir, locked

#: A file's content, or a file of this machine that has it; and its mode.
Content = tuple["bytes | Path", int]


@dataclass(frozen=True)
class Package:
    """A package in both worlds. ``version`` is without epoch and release, ``depends`` holds (name, relation, version).

    ``files``: path -> content; ``config``: those of them that an upgrade leaves as they are; ``after``: a script that
    runs when it was installed, ``before_removal`` one that runs before it goes for good.
    """

    name: str
    version: str
    release: str = "1"
    depends: tuple[tuple[str, str, str], ...] = ()
    provides: tuple[str, ...] = ()
    epoch: str = ""
    conflicts: tuple[str, ...] = ()
    files: dict[str, Content] = field(default_factory=dict)
    config: tuple[str, ...] = ()
    after: str = ""
    before_removal: str = ""

    @property
    def full(self) -> str:
        """As a file's name has it."""
        return f"{self.version}-{self.release}"

    @property
    def ordered(self) -> str:
        """With the epoch, as package managers tell it."""
        return f"{self.epoch}:{self.full}" if self.epoch else self.full

    def key(self) -> str:
        """What it is made from, as 16 hexadecimal digits."""
        parts = (
            self.name, self.ordered, self.depends, self.provides, self.conflicts, self.config, self.after,
            self.before_removal,
        )  # fmt: skip
        digest = hashlib.sha256(repr((*parts, RECIPE)).encode())
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
    if not shutil.which("dpkg-deb"):
        raise ProgramError("Packages of the testbed are made by dpkg-deb, and there is none. Install the package dpkg.")
    target = cached() / f"{package.name}_{package.full}_amd64-{package.key()}.deb"
    with locked(target.with_suffix(".lock"), lambda: None):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=cached()) as scratch:
                root = Path(scratch) / "root"
                package.unpack(root)
                _control(package, root / "DEBIAN")
                made = Path(scratch) / "made.deb"
                call(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", root, made])
                made.rename(target)
    return target


def _control(package: Package, folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.parent.chmod(0o755)
    needs = ", ".join(f"{name} ({relation} {version})" for name, relation, version in package.depends)
    lines = [
        f"Package: {package.name}",
        f"Version: {package.ordered}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        *([f"Depends: {needs}"] if needs else []),
        *([f"Provides: {', '.join(package.provides)}"] if package.provides else []),
        *([f"Conflicts: {', '.join(package.conflicts)}"] if package.conflicts else []),
        "Description: made by the testbed",
    ]
    (folder / "control").write_text("\n".join(lines) + "\n")
    if package.config:
        (folder / "conffiles").write_text("".join(f"{path}\n" for path in package.config))
    scripts = (("postinst", "configure", package.after), ("prerm", "remove", package.before_removal))
    for name, when, text in scripts:
        if text:
            (folder / name).write_text(f'#!/bin/sh\nset -e\n[ "$1" = {when} ] || exit 0\n{text}')
            (folder / name).chmod(0o755)


def spec(package: Package, folder: str) -> str:
    """What rpmbuild makes it from; its files lie below ``folder``, in one named as the package."""
    signs = {"<<": "<", ">>": ">"}
    needs = [f"Requires: {name} {signs.get(sign, sign)} {version}" for name, sign, version in package.depends]
    files = [f"%config(noreplace) {path}" if path in package.config else path for path in package.files]
    sections = [
        ("%post", package.after),
        ("%preun", package.before_removal and f'[ "$1" = 0 ] || exit 0\n{package.before_removal}'),
    ]
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
