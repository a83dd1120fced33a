# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the gates work: a clean copy of the checkout, laid out as Ansible wants a collection, and real interpreters.

The copy holds what git would commit (tracked files, and new ones that are not ignored), so a gate judges what others
will get, and nothing that a gate writes lands in the checkout. It has a git of its own, because ansible-test asks git
which files there are and finds none in a folder that an outer checkout ignores.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTION = Path("ansible_collections/gpufleet/nvidia")
# The versions on which plugins must work: the floor is what GPU hosts with RHEL 9 bring.
FLOOR = "3.9"
PYTHONS = (FLOOR, "3.10", "3.11", "3.12", "3.13", "3.14")


def cache_folder() -> Path:
    """The folder outside the checkout in which everything that can be made again is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("GPUFLEET_CACHE") or Path(base) / "gpufleet")


@functools.cache
def interpreters() -> dict[str, Path]:
    """Real interpreters by version, such as ``{"3.9": /usr/bin/python3.9}``.

    pyenv's shims are passed over: they answer for versions that are not there.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = {}
    for version in PYTHONS:
        places = [*sorted(pyenv.glob(f"{version}.*/bin")), Path("/usr/local/bin"), Path("/usr/bin")]
        for python in (place / f"python{version}" for place in places):
            if works(python):
                found[version] = python
                break
    return found


def works(python: Path) -> bool:
    """Whether this interpreter starts and can make virtual environments, as ansible-test does."""
    if not os.access(python, os.X_OK):
        return False
    asked = subprocess.run([python, "-c", "import ensurepip, ssl, venv"], capture_output=True, check=False)
    return asked.returncode == 0


@dataclass(frozen=True)
class Place:
    """One copy that gates run in: ``source`` is the checkout it came from, ``tree`` the copy."""

    source: Path
    home: Path

    @property
    def root(self) -> Path:
        """What goes into ANSIBLE_COLLECTIONS_PATH and MYPYPATH."""
        return self.home / "collections"

    @property
    def tree(self) -> Path:
        return self.root / COLLECTION

    @property
    def scratch(self) -> Path:
        return self.home / "scratch"

    def environment(self) -> dict[str, str]:
        """The variables of every gate: own tools first, then real interpreters; no settings of the person."""
        tools = cache_folder() / "gates"
        kept = {name: value for name, value in os.environ.items() if not re.match(r"ANSIBLE_|PYTHONPATH$|GIT_", name)}
        programs = (str(Path(sys.executable).parent), str(tools / "pythons"), "/usr/local/bin", "/usr/bin", "/bin")
        return kept | {
            "ANSIBLE_COLLECTIONS_PATH": str(self.root),
            "ANSIBLE_LOCAL_TEMP": str(self.home / "ansible-tmp"),
            "HOME": str(tools / "home"),
            "LC_ALL": "C.UTF-8",
            "MYPYPATH": str(self.root),
            "NO_COLOR": "1",
            "PATH": os.pathsep.join(programs),
            "PIP_CACHE_DIR": str(cache_folder() / "pip"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def files_of(checkout: Path) -> list[str]:
    """What git would commit from this checkout, relative to it."""
    listing = ["git", "-C", str(checkout), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, capture_output=True, check=True, text=True).stdout.split("\0")
    return sorted({name for name in names if name and os.path.lexists(checkout / name)})


def sync(source: Path, tree: Path, names: list[str]) -> None:
    """Make ``tree`` hold these files of ``source`` and no others; files that are equal already are not touched."""
    tree.mkdir(parents=True, exist_ok=True)
    wanted = set(names)
    for folder, folders, files in os.walk(tree, topdown=False):
        if ".git" in Path(folder).relative_to(tree).parts:
            continue
        for name in files:
            path = Path(folder, name)
            if str(path.relative_to(tree)) not in wanted:
                path.unlink()
        for name in folders:
            path = Path(folder, name)
            if path.is_symlink():
                path.unlink()
            elif name != ".git" and not any(path.iterdir()):
                path.rmdir()
    for name in names:
        copy_when_different(source / name, tree / name)
    if not (tree / ".git").exists():
        subprocess.run(["git", "init", "-q", str(tree)], check=True)


def copy_when_different(source: Path, target: Path) -> None:
    """Times of change decide: they go along with the copy, so that the caches of mypy and ruff stay valid."""
    ours = source.lstat()
    if target.is_file() and not target.is_symlink():
        theirs = target.stat()
        if (ours.st_mtime_ns, ours.st_size, ours.st_mode) == (theirs.st_mtime_ns, theirs.st_size, theirs.st_mode):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(source, target, follow_symlinks=False)


def prepare_tools() -> dict[str, Path]:
    """What ansible-test needs beside itself: real interpreters on the PATH, and pip for its own environments.

    ansible-test wants to fetch a program that installs pip. It takes one from its cache as well, and Python brings
    pip along (ensurepip), so a few lines put there do the same from the package index alone.
    """
    tools = cache_folder() / "gates"
    pythons = interpreters()
    folder = tools / "pythons"
    folder.mkdir(parents=True, exist_ok=True)
    for version, python in pythons.items():
        link = folder / f"python{version}"
        fresh = link.with_suffix(f".{os.getpid()}")
        fresh.symlink_to(python)
        fresh.replace(link)
    cached = tools / "home/.ansible/test/cache"
    cached.mkdir(parents=True, exist_ok=True)
    for version in pip_versions():
        (cached / f"get_pip_{version.replace('.', '_')}.py").write_text(INSTALL_PIP, encoding="utf-8")
    return pythons


def pip_versions() -> set[str]:
    """The versions of pip that ansible-test asks for, read from its source: it has no other way to tell."""
    folder = importlib.util.find_spec("ansible_test")
    if folder is None or folder.origin is None:
        sys.exit("ansible-test is not installed beside this Python: run scripts/setup")
    source = Path(folder.origin).with_name("_internal") / "python_requirements.py"
    return set(re.findall(r"\bpip='([0-9.]+)'", source.read_text(encoding="utf-8")))


INSTALL_PIP = """\
import runpy
import subprocess
import sys

# In a process of its own: ensurepip forgets the settings of pip.
subprocess.check_call([sys.executable, "-m", "ensurepip"])
options = [option for option in sys.argv[1:] if option not in ("--no-setuptools", "--no-wheel")]
sys.argv = ["pip", "install", "--upgrade", *options]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


@contextmanager
def place_for(checkout: Path, home: Path | None = None) -> Iterator[Place]:
    """A place with a fresh copy of this checkout; one run at a time in each, the next one waits."""
    name = hashlib.sha256(str(checkout).encode()).hexdigest()[:12]
    place = Place(checkout, home or cache_folder() / "gates" / "places" / name)
    place.scratch.mkdir(parents=True, exist_ok=True)
    with (place.home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run of the gates is busy with this checkout; waiting for it.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        sync(checkout, place.tree, files_of(checkout))
        yield place
