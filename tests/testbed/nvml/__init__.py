# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML double: a library that plays a host's GPUs from a state file, and the program that makes and changes that file.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.nvml FOLDER
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..programs import ProgramError, Report, cache_dir, locked, say

HERE = Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"
PROGRAM = "nvml-double"
SHARED = ("codes.c", "file.c", "geometry.c", "products.c")
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC")
#: What is made, and from what beside the shared sources.
PARTS = {
    LIBRARY: ("-shared", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "library.c"),
    PROGRAM: ("program.c",),
}


def compiler() -> str:
    found = shutil.which("gcc") or shutil.which("cc")
    if not found:
        raise ProgramError(
            "The NVML double needs a C compiler, and there is none. On Debian or Ubuntu: apt-get install gcc"
        )
    return found


@functools.lru_cache(maxsize=1)
def _compiler_version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def key() -> str:
    """What the double is made from, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{_compiler_version(compiler())}\0{FLAGS}\0{PARTS}\0{SHARED}\0".encode())
    for path in sorted([*HERE.glob("*.c"), *HERE.glob("*.h")]):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def location() -> Path:
    """The folder where the double lies, or will lie once it is built."""
    return cache_dir() / "programs" / f"nvml-{key()}"


def build(report: Report = say) -> Path:
    """The folder with the library and the program; builds them first (seconds) where the cache has none."""
    target = location()
    if target.exists():
        return target
    with locked(target.with_suffix(".lock"), lambda: report("NVML double: another run is building it, waiting")):
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as scratch:
                result = Path(scratch) / "result"
                result.mkdir()
                compile_into(result)
                result.rename(target)
            report("NVML double: built")
    return target


def compile_into(folder: Path, *flags: str) -> None:
    for name, arguments in PARTS.items():
        command = [compiler(), *FLAGS, *flags, "-o", str(folder / name), *arguments, *SHARED]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramError(f"NVML double: `{' '.join(command)}` failed:\n{done.stderr}")


def copy_to(folder: Path, report: Report = say) -> None:
    """Put the two where a host or a person finds them, each in one step: a process that has the old one keeps it."""
    source = build(report)
    folder.mkdir(parents=True, exist_ok=True)
    for name in PARTS:
        beside = folder / f".{name}.{os.getpid()}"
        shutil.copy2(source / name, beside)
        beside.replace(folder / name)
