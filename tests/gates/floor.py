# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves the floor that the collection promises: the oldest Python of plugins, and the oldest ansible-core.

``floor.py hosts`` runs the unit tests of what GPU hosts run on Python 3.9, ``floor.py python`` those of all
module_utils. ``floor.py ansible`` runs unit tests and a whole practice cluster with ansible-core 2.18. Each has an
environment of its own in the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT, FLOOR, cache_folder, interpreters

# Without versions where pip finds the newest that this Python can have.
PYTHON_NEEDS = (
    "PyYAML", "cryptography", "hypothesis", "jmespath", "kubernetes", "kubernetes-validate", "nvidia-ml-py", "pytest",
    "pytest-xdist", "tomli", "tomlkit",
)  # fmt: skip
# The rooms of module_utils that run beside ansible-playbook, whose own Python is newer.
ON_CONTROLLER = ("checks", "kube", "nodes", "operands", "policy", "reconciler", "stack")
# What ansible-core 2.18 runs on; the testbed itself wants 3.11 or newer.
ANSIBLE_PYTHONS = ("3.13", "3.12", "3.11")


def oldest_ansible() -> str:
    """The floor as meta/runtime.yml promises it: "2.18"."""
    promise = (CHECKOUT / "meta/runtime.yml").read_text(encoding="utf-8")
    found = re.search(r'requires_ansible: ">=(\d+\.\d+)\.0"', promise)
    if not found:
        sys.exit("meta/runtime.yml: requires_ansible is not of the form >=X.Y.0, without a ceiling")
    return found.group(1)


def environment(name: str, python: Path, needs: tuple[str, ...]) -> Path:
    """The Python of an environment that has these packages; made once."""
    version = subprocess.run([python, "-VV"], capture_output=True, check=True, text=True).stdout
    key = hashlib.sha256("\n".join([str(python), version, *needs]).encode()).hexdigest()[:16]
    folder = cache_folder() / "floor" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            print(f"{name}: installing {', '.join(needs)} into {folder} (once)", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([python, "-m", "venv", folder], check=True)
            pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            subprocess.run([*pip, *needs], check=True)
            (folder / ".complete").touch()
    return folder / "bin/python"


def run(*command: str | Path) -> int:
    print("+", " ".join(str(part) for part in command), flush=True)
    return subprocess.run(command, cwd=CHECKOUT, stdin=subprocess.DEVNULL, check=False).returncode


def prove_hosts() -> int:
    return prove_python(*(f"--ignore=tests/unit/module_utils/{room}" for room in ON_CONTROLLER))


def prove_python(*options: str) -> int:
    python = interpreters().get(FLOOR)
    if python is None:
        print(f"NOT PROVED: there is no Python {FLOOR} on this machine. Install one and run again.", flush=True)
        return 0
    at_floor = environment(f"python-{FLOOR}", python, PYTHON_NEEDS)
    pytest = (at_floor, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=floor")
    return run(*pytest, "tests/unit/module_utils", "-n", "2", "-m", "not long", *options)


def prove_ansible() -> int:
    version = oldest_ansible()
    found = interpreters()
    python = next((found[name] for name in ANSIBLE_PYTHONS if name in found), None)
    if python is None:
        sys.exit(f"ansible-core {version} needs one of Python {', '.join(ANSIBLE_PYTHONS)}, and there is none")
    needs = (f"ansible-core=={version}.*", *PYTHON_NEEDS)
    at_floor = environment(f"ansible-{version}", python, needs)
    folder = at_floor.parent
    os.environ["ANSIBLE_COLLECTIONS_PATH"] = str(CHECKOUT / "build/collections")
    os.environ["PYTHONPATH"] = str(CHECKOUT / "build/collections")
    playbooks = [str(path.relative_to(CHECKOUT)) for path in sorted(CHECKOUT.glob("playbooks/*.yml"))]
    status = run(folder / "ansible", "--version")
    status |= run(folder / "ansible-playbook", "--syntax-check", "-i", "inventories/practice", *playbooks)
    status |= run(at_floor, "-m", "pytest", "-q", "tests/unit", "--ignore=tests/unit/module_utils", "-m", "not long")
    practice = (at_floor, "-m", "ansible_collections.gpufleet.nvidia.tests.testbed.practice")
    with tempfile.TemporaryDirectory(prefix="gpufleet-floor-") as scratch:
        try:
            status |= run(*practice, "up", "--dir", scratch)
        finally:
            run(*practice, "down", "--dir", scratch)
    return status


if __name__ == "__main__":
    kinds = {"hosts": prove_hosts, "python": prove_python, "ansible": prove_ansible}
    if sys.argv[1:2] not in [[kind] for kind in kinds]:
        sys.exit(f"usage: floor.py {'|'.join(kinds)}")
    sys.exit(1 if kinds[sys.argv[1]]() else 0)
