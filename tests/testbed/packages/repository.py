# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories as NVIDIA publishes them: a flat one for apt, one with repodata for dnf and zypper, both signed."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package, cached, call, control, deb, spec
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError, locked


class Key:
    """A key that signs, made for the folder. ``text`` is its public half, in letters as it is published."""

    def __init__(self, folder: Path) -> None:
        if not shutil.which("gpg"):
            raise ProgramError("Repositories of the testbed are signed by gpg, and there is none. Install gnupg.")
        self._home = folder / "gnupg"
        self._home.mkdir(parents=True, mode=0o700)
        self._gpg(
            "--passphrase", "", "--quick-generate-key", "testbed <testbed@example.com>", "rsa3072", "sign", "never"
        )
        self.text = self._gpg("--armor", "--export")

    def clear(self, file: Path, target: Path) -> None:
        """A file with its signature in it."""
        self._gpg("--output", target, "--clear-sign", file)

    def apart(self, file: Path, target: Path) -> None:
        """The signature of a file, in letters."""
        self._gpg("--output", target, "--armor", "--detach-sign", file)

    def _gpg(self, *words: str | Path) -> str:
        return call(
            ["gpg", "--homedir", self._home, "--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", *words]
        )

    def close(self) -> None:
        """End the agent that gpg started for the folder."""
        call(["gpgconf", "--homedir", self._home, "--kill", "all"])


def apt(packages: Sequence[Package], folder: Path, key: Key) -> Path:
    """A flat repository (``deb file:FOLDER /``)."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(_debs(packages), folder, copy_function=_link)
    sums = [
        f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}"
        for path in (folder / "Packages", folder / "Packages.gz")
    ]
    date = call(["date", "-Ru"], env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).replace("+0000", "UTC").strip()
    lines = ["Origin: testbed", "Architectures: amd64", f"Date: {date}", "SHA256:", *sums]
    (folder / "Release").write_text("\n".join(lines) + "\n")
    key.clear(folder / "Release", folder / "InRelease")
    return folder


def _debs(packages: Sequence[Package]) -> Path:
    """The repository without Release and signature, in the cache."""
    target = cached() / f"deb-{_key(packages)}"
    with locked(target.with_suffix(".lock"), lambda: None):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=cached()) as scratch:
                folder = Path(scratch) / "repo"
                folder.mkdir()
                _index(packages, folder)
                folder.rename(target)
    return target


def _index(packages: Sequence[Package], folder: Path) -> None:
    paragraphs = []
    for package in packages:
        made = deb(package)
        name = f"{package.file}_amd64.deb"
        _link(made, folder / name)
        sum = hashlib.sha256(made.read_bytes()).hexdigest()
        paragraphs.append(f"{control(package)}Filename: ./{name}\nSize: {made.stat().st_size}\nSHA256: {sum}\n")
    index = "\n".join(paragraphs).encode()
    (folder / "Packages").write_bytes(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index, mtime=0))


def _key(packages: Sequence[Package], *more: str) -> str:
    keys = "\0".join([*sorted(package.key() for package in packages), *more])
    return hashlib.sha256(keys.encode()).hexdigest()[:16]


def rpm(packages: Sequence[Package], folder: Path, key: Key, host: Host, modules: str = "") -> Path:
    """A repository for dnf and zypper; rpmbuild and createrepo_c are those of a host that has them.

    ``modules``: the text of a modules.yaml, for a repository with module streams.
    """
    kept = _rpms(packages, host, modules)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(kept, folder, copy_function=_link)
    key.apart(folder / "repodata/repomd.xml", folder / "repodata/repomd.xml.asc")
    (folder / "repodata/repomd.xml.key").write_text(key.text)
    return folder


def _rpms(packages: Sequence[Package], host: Host, modules: str) -> Path:
    """The repository without a signature, in the cache."""
    target = cached() / f"rpm-{_key(packages, *([modules] if modules else []))}"
    with locked(target.with_suffix(".lock"), lambda: None):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=cached()) as scratch:
                _build(packages, host, Path(scratch), modules)
                (Path(scratch) / "repo").rename(target)
    return target


def _build(packages: Sequence[Package], host: Host, scratch: Path, modules: str) -> None:
    source = scratch / "source"
    for number, package in enumerate(packages):
        package.unpack(source / f"{number}.root")
        (source / f"{number}.spec").write_text(spec(package, f"/var/tmp/rpms/{number}.root"))
    (source / "modules.yaml").write_text(modules)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(source, "rpms")
    host.run(["tar", "-C", "/var/tmp", "-x"], stdin=packed.getvalue(), timeout=120)
    options = "--quiet --define '_rpmdir /var/tmp/rpms/repo' --define '_binary_payload w1.gzdio' --target x86_64"
    # Several at a time would each make these.
    top = "mkdir -p top/{BUILD,BUILDROOT,RPMS,SOURCES,SPECS,SRPMS}"
    plain = "--define '_topdir /var/tmp/rpms/top' --define '__os_install_post %{nil}' --define 'debug_package %{nil}'"
    host.run(
        f"cd /var/tmp/rpms && {top} && ls *.spec | xargs -P 2 -n 20 rpmbuild -bb {options} {plain} && "
        "mv repo/x86_64/*.rpm repo && rmdir repo/x86_64 && createrepo_c --quiet repo && "
        "if [ -s modules.yaml ]; then modifyrepo_c --mdtype=modules modules.yaml repo/repodata; fi && "
        "tar -c repo >repo.tar",
        timeout=400,
    )
    with tarfile.open(fileobj=io.BytesIO(host.get("/var/tmp/rpms/repo.tar"))) as archive:
        archive.extractall(scratch, filter="data")
    host.run("rm -rf /var/tmp/rpms")


def _link(file: str | Path, target: str | Path) -> str | Path:
    """A second name for a file of the cache, or a copy on another disk."""
    try:
        Path(target).hardlink_to(file)
    except OSError:
        shutil.copy2(file, target)
    return target
