# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python environment in which ours and the peers are measured: one ansible-core, one ``kubernetes`` for all.

kubernetes.core comes with the package ``ansible``. Its other collections, 600 MB that nothing here measures, are
removed after the installation. The environment lives in the cache, keyed by its content.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT, cache_folder
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import Report, say

PACKAGES = ("ansible", "kubernetes", "PyYAML")
KEPT = "kubernetes/core"  # the one collection of the package that is measured
CONSTRAINTS = CHECKOUT / "tests" / "constraints.txt"


class PeerError(Exception):
    """The environment of the peers cannot be made; the message says why."""


def key() -> str:
    """What the environment is made from, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{sys.version}\0{sys.base_prefix}\0{PACKAGES}\0{KEPT}\0".encode())
    digest.update(CONSTRAINTS.read_bytes())
    return digest.hexdigest()[:16]


def environment(report: Report = say) -> Path:
    """The environment's ``bin`` folder; installs it where the cache has none."""
    home = cache_folder() / "bench" / key()
    if not (home / ".complete").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with home.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two runs do not install into one folder
            if not (home / ".complete").exists():
                _install(home, report)
    return home / "bin"


def _install(home: Path, report: Report) -> None:
    began = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    report("bench: installing kubernetes.core and what it needs (once, 1 to 4 minutes)")
    venv.create(home, with_pip=True)
    command = [
        str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
        *PACKAGES, "-c", str(CONSTRAINTS),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        while True:
            try:
                output, _unused = pip.communicate(timeout=20)
                break
            except subprocess.TimeoutExpired:
                report(f"bench: still installing, {time.monotonic() - began:.0f} s so far")
            except BaseException:
                pip.kill()
                raise
    if pip.returncode:
        raise PeerError(f"the packages {', '.join(PACKAGES)} cannot be installed:\n{output.strip()}")
    _prune(home)
    (home / ".complete").touch()
    report(f"bench: installed in {time.monotonic() - began:.0f} s")


def _prune(home: Path) -> None:
    """Of the package's collections only one stays; what remains is compiled once, so that no run pays for that."""
    root = next(home.glob("lib/python*/site-packages/ansible_collections"), None)
    if root is None or not (root / KEPT).is_dir():
        raise PeerError(f"the package ansible did not bring the collection {KEPT.replace('/', '.')}")
    kept = root / KEPT
    for folder in [*root.iterdir(), *kept.parent.iterdir()]:
        if folder.is_dir() and folder not in (kept, kept.parent):
            shutil.rmtree(folder)
    subprocess.run(
        [home / "bin" / "python", "-m", "compileall", "-q", root.parent], capture_output=True, check=False
    )  # fmt: skip
