# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVML double: a library that plays a host's GPUs from a state file, and the programs to it.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.nvml FOLDER
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..programs import ProgramError, Report, cache_dir, locked, say

HERE = Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"
PROGRAM = "nvml-double"
SMI = "nvidia-smi"
SHARED = ("codes.c", "file.c", "geometry.c", "products.c")
FLAGS = ("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC")
#: What is made, and from what beside the shared sources.
PARTS = {
    LIBRARY: ("-shared", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}", "library.c"),
    PROGRAM: ("program.c",),
    SMI: ("smi.c",),
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


@dataclass(frozen=True)
class Double:
    """One played host: its state file, and the log of the calls that were made to it."""

    state: Path
    log: Path
    folder: Path

    @classmethod
    def create(cls, place: Path, *arguments: str, log: str = "calls.jsonl") -> Double:
        """``create(tmp_path, "--product", "A30", "--count", "2")``."""
        double = cls(place / "nvml.state", place / log, build(lambda line: None))
        double.program("create", *arguments, str(double.state))
        return double

    @property
    def library(self) -> Path:
        return self.folder / LIBRARY

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to see this host. LD_LIBRARY_PATH counts only when a process starts."""
        return {
            "NVML_DOUBLE_STATE": str(self.state),
            "NVML_DOUBLE_LOG": str(self.log),
            "LD_LIBRARY_PATH": str(self.folder),
        }

    def program(self, *arguments: str) -> str:
        done = subprocess.run([str(self.folder / PROGRAM), *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProgramError(done.stderr.strip())
        return done.stdout

    def set(self, *arguments: str) -> None:
        self.program("set", str(self.state), *arguments)

    def reset(self, gpu: str) -> None:
        self.program("reset", str(self.state), f"gpu={gpu}")

    def reload(self) -> None:
        self.program("reload", str(self.state))

    def reboot(self) -> None:
        self.program("reboot", str(self.state))

    def show(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.program("show", str(self.state)))
        return shown

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def writes(self) -> list[dict[str, Any]]:
        """The calls that may change something, in their order."""
        return [call for call in self.calls() if call["write"]]

    def layout(self, gpu: int = 0) -> list[tuple[str, int]]:
        """(profile, start) of each GPU instance, by start."""
        instances = self.show()["gpus"][gpu]["instances"]
        return sorted(((gi["name"], gi["start"]) for gi in instances), key=lambda pair: pair[1])
