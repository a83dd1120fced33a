# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module file that a kernel will load: whether it is there, what it is, and having DKMS build it.

The file decides, never an exit code: packages end well when DKMS has skipped the build for want of headers.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from .._host._commands import CommandFailed, Runner
from .._host._files import Files
from .._host_state import _driver, _modinfo
from .._host_state._tree import Problems, Tree
from .._plan import Failure

BUILD_TIME = 1800.0  # seconds: all modules of a driver on a small machine
_UTS = re.compile(r"^#define UTS_RELEASE \"([^\"]+)\"", re.MULTILINE)
DKMS = "/var/lib/dkms"
MAKE_LOG_LINES = 12
_MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")
_PACKING = re.compile(r"\.ko(\.gz|\.xz|\.zst)?\Z")
_CONFIGS = ("/lib/modules/{}/build/.config", "/boot/config-{}", "/lib/modules/{}/config")
_CC_TEXT = re.compile(r'^CONFIG_CC_VERSION_TEXT="(.*)"$', re.MULTILINE)
_VERSION = re.compile(r"\b(\d+)\.\d+(?:\.\d+)?")
_STATUS = re.compile(
    r"\A(?P<name>[A-Za-z0-9._+-]+)(?:/|, )(?P<version>[^,:\s]+)(?:, (?P<kernel>[^,:\s]+), (?P<arch>[^,:\s]+))?"
    r": (?P<state>[a-z-]+)(?P<note>.*)\Z"
)
_FAULT = re.compile(r"(?i)\berror\b|\bfatal\b|no rule to make|cannot find|killed")


@dataclass(frozen=True)
class Built:
    """A module file: ``kernel`` is the one whose folder it lies in, ``built_for`` the one that it names itself.

    ``listed``: depmod has it in its list, without which modprobe does not find it. ``unreadable``: why nothing else is
    known of it.
    """

    version: str
    flavour: str
    signer: str
    file: str
    kernel: str = ""
    built_for: str = ""
    listed: bool = True
    unreadable: str = ""


@dataclass(frozen=True)
class Dkms:
    """A line of ``dkms status``; ``kernel`` and ``arch`` are "" where it has been added, and built for none."""

    name: str
    version: str
    kernel: str
    arch: str
    state: str
    note: str


@dataclass(frozen=True)
class Compiler:
    """What built a kernel, and what would build modules for it. ``problem``: a sentence where that does not fit."""

    kernels: str
    program: str
    found: str
    problem: str


def tree_of(files: Files, part: str = "driver") -> Tree:
    """The same files as the readers of a host's state see them."""
    return Tree(files.root.folder, part, Problems())


def command_of(runner: Runner) -> _modinfo.Command:
    """How the readers of a host's state run programs."""

    def run(argv: List[str], timeout: float) -> Tuple[int, str]:
        try:
            done = runner.run(argv, check=False, timeout=timeout)
        except CommandFailed as error:
            raise OSError(0, error.msg) from None
        return done.rc, done.out

    return run


def running(files: Files) -> str:
    """The release of the running kernel."""
    tree = tree_of(files)
    found = tree.text("/proc/sys/kernel/osrelease") or (platform.release() if tree.live else "")
    if not found:
        raise Failure("The release of the running kernel is not told by /proc/sys/kernel/osrelease. Mount /proc.")
    return found


def installed(runner: Runner, files: Files, kernel: str, name: str = "nvidia") -> Optional[Built]:
    """The module file that the kernel would load, None where there is none.

    ``name`` is what modprobe is asked for; with ``nvidia`` Debian's own names count as well.
    """
    tree = tree_of(files)
    listed = tree.text(f"/lib/modules/{kernel}/modules.dep", 64 * 1024 * 1024)
    known = {line.partition(":")[0] for line in listed.splitlines()}
    names = _MODULE_NAMES if name == "nvidia" else (name,)
    ranked = []
    for path in _driver.module_files(tree, kernel):
        stem = _PACKING.sub("", os.path.basename(path))
        if stem in names:
            there = path in known or path.partition(f"/lib/modules/{kernel}/")[2] in known
            ranked.append((names.index(stem), not there, _rank(path), path))
    if not ranked:
        return None
    best = min(ranked)
    return _read(tree, runner, best[3], kernel, listed=not best[1])


def _rank(path: str) -> int:
    """Which folder depmod prefers, where it has not told."""
    order = ("/updates/", "/extra/", "/kernel/", "/weak-updates/")
    return next((number for number, part in enumerate(order) if part in path), len(order))


def _read(tree: Tree, runner: Runner, path: str, kernel: str, listed: bool) -> Built:
    try:
        told = _modinfo.fields(tree.place(path), command_of(runner))
    except (_modinfo.Unreadable, OSError) as error:
        return Built("", "", "", path, kernel, listed=listed, unreadable=str(error))
    magic = told.get("vermagic", "").split(" ")[0]
    flavour = _driver.flavour_of_licence(told.get("license", ""))
    return Built(told.get("version", ""), flavour, told.get("signer", ""), path, kernel, magic, listed)


def wrong_with(built: Optional[Built], kernel: str, version: str, flavour: str = "", signed: bool = False) -> str:
    """Why this is not the module that is wanted, "" where it is. ``signed``: an unsigned one would not be loaded."""
    if built is None:
        return f"there is no module nvidia for kernel {kernel}"
    if built.unreadable:
        return f"{built.file} {built.unreadable}"
    if built.version != version:
        return f"{built.file} is version {built.version or '(none)'}, not {version}"
    if flavour and built.flavour != flavour:
        return f"{built.file} is the {built.flavour or 'unknown'} module, not the {flavour} one"
    if built.built_for and built.built_for != kernel and "/weak-updates/" not in built.file:
        return f"{built.file} was built for kernel {built.built_for}, not for {kernel}"
    if signed and not built.signer:
        return f"{built.file} is not signed, and this host loads signed modules only"
    return ""


def dkms_status(text: str) -> List[Dkms]:
    """The lines of ``dkms status``: ``nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed``, or with a comma as the
    versions before 3 write; what is no such line is left out."""
    found = []
    for line in text.splitlines():
        match = _STATUS.match(line.strip())
        if match:
            parts = match.groupdict("")
            parts["note"] = parts["note"].strip()
            found.append(Dkms(**parts))
    return found


def dkms(runner: Runner) -> List[Dkms]:
    """What DKMS knows of NVIDIA's modules; none where DKMS is not there."""
    try:
        told = runner.run(["dkms", "status"], check=False, timeout=60.0)
    except CommandFailed:
        return []
    return [one for one in dkms_status(told.out) if one.name.startswith("nvidia")]


def prove_built(
    runner: Runner,
    files: Files,
    kernel: str,
    version: str,
    *,
    flavour: str = "",
    signed: bool = False,
    name: str = "nvidia",
) -> Built:
    """The module file for a kernel is there, of this version (and flavour, and signed). DKMS is asked once to build it
    where it is not. Raises Failure with the cause and the end of make's log."""
    wrong = wrong_with(installed(runner, files, kernel, name), kernel, version, flavour, signed)
    tried = ""
    if wrong and any(one.version == version for one in dkms(runner)):
        tried = _build(runner, kernel)
        wrong = wrong_with(installed(runner, files, kernel, name), kernel, version, flavour, signed)
    built = installed(runner, files, kernel, name)
    if not wrong and built is not None:
        return built if built.listed else _list(runner, files, kernel, name)
    raise Failure(_not_built(files, kernel, version, wrong, tried))


def _build(runner: Runner, kernel: str) -> str:
    """Have DKMS build what it has for a kernel; what was done, as a sentence. How it ended does not count."""
    argv = ["dkms", "autoinstall", "-k", kernel]
    try:
        done = runner.run(argv, check=False, timeout=BUILD_TIME)
    except CommandFailed as failure:
        return f"{failure.msg.rstrip('.')}."
    ended = "ended well" if done.rc == 0 else f"ended with {done.rc}"
    return f"`{' '.join(argv)}` {ended}: {done.words().rstrip('.')}."


def _list(runner: Runner, files: Files, kernel: str, name: str) -> Built:
    runner.run(["depmod", kernel], timeout=300.0)
    built = installed(runner, files, kernel, name)
    if built is None or not built.listed:
        raise Failure(
            f"depmod does not list the module nvidia of kernel {kernel}, so modprobe would not find it. Look at "
            f"/lib/modules/{kernel} and the files of /etc/depmod.d, then run again."
        )
    return built


def _not_built(files: Files, kernel: str, version: str, wrong: str, tried: str) -> str:
    """What is wrong, what was tried, why, and what to do; the end of make's log last."""
    parts = [f"The kernel module of driver {version} is not there for kernel {kernel}: {wrong}."]
    if tried:
        parts.append(tried)
    headers = headers_missing(files, kernel)
    path, log = make_log(files, version)
    if headers:
        parts.append(headers)
    parts.append("Nothing was loaded or unloaded.")
    if not headers:
        parts.append(f"Mend the build, or install modules that are built for kernel {kernel}; then run again.")
    if log:
        parts.append(f"The end of {path}:\n{log}")
    return " ".join(parts)


def make_log(files: Files, version: str) -> Tuple[str, str]:
    """The log of the last build of a version, and its end, the first error before it; "" where there is none."""
    tree = tree_of(files)
    names = [name for name in tree.names(DKMS) if name.startswith("nvidia")]
    for path in [f"{DKMS}/{name}/{version}/build/make.log" for name in names]:
        lines = tree.text(path, 16 * 1024 * 1024).splitlines()
        if lines:
            first = [line for line in lines[:-MAKE_LOG_LINES] if _FAULT.search(line)][:1]
            return path, "\n".join([*first, *lines[-MAKE_LOG_LINES:]])
    return "", ""


def headers_missing(files: Files, kernel: str) -> Optional[str]:
    """Why modules cannot be built for a kernel, as a sentence; None where its headers are there."""
    tree = tree_of(files)
    build = f"/lib/modules/{kernel}/build"
    remedy = f"Install linux-headers-{kernel} (Debian, Ubuntu), kernel-devel-{kernel} (Enterprise Linux, Amazon) or "
    remedy += "kernel-default-devel of that version (SUSE), then run again."
    if tree.kind(f"{build}/Makefile") == "file":
        named = _release_of(tree, build)
        if named in ("", kernel):
            return None
        return f"{build} holds the headers of kernel {named}, not of {kernel}. {remedy}"
    if not tree.kind(f"/lib/modules/{kernel}"):
        return f"Kernel {kernel} is not installed: /lib/modules/{kernel} is not there. Install it, or name another."
    if files.exists(build) and tree.kind(build) != "folder":
        return f"{build} leads nowhere: the headers of kernel {kernel} are gone. {remedy}"
    return f"The headers of kernel {kernel} are not installed, so DKMS skips its build without a word. {remedy}"


def _release_of(tree: Tree, build: str) -> str:
    """The kernel that headers belong to. Debian's name another one in ``kernel.release``, and override it by this."""
    found = _UTS.search(tree.text(f"{build}/include/generated/utsrelease.h"))
    return found.group(1) if found else tree.text(f"{build}/include/config/kernel.release")


def compiler(files: Files, runner: Runner, kernel: str) -> Compiler:
    """What built a kernel, as its configuration says, and the compiler that is there."""
    text = _kernels_compiler(files, kernel)
    major = _major(text)
    if not major or "clang" in text:
        return Compiler(text, "", "", _clang(runner) if "clang" in text else "")
    # The build of the kernel asks for its own compiler by number; Debian's and Ubuntu's headers name it so.
    for program in (f"gcc-{major}", "gcc"):
        found = _said(runner, program)
        if found and _major(found) >= major:
            return Compiler(text, program, found, "")
    there = _said(runner, "gcc")
    has = f"gcc here is {_major(there)}" if there else "there is no gcc"
    return Compiler(
        text,
        "gcc" if there else "",
        there,
        f"Kernel {kernel} was built with gcc {major}, and {has}. Install gcc-{major} (package gcc-{major}), then run "
        "again.",
    )


def _kernels_compiler(files: Files, kernel: str) -> str:
    tree = tree_of(files)
    for place in _CONFIGS:
        found = _CC_TEXT.search(tree.text(place.format(kernel), 4 * 1024 * 1024))
        if found:
            return found.group(1)
    if tree.text("/proc/sys/kernel/osrelease") == kernel:
        said = re.search(r"\(((?:\S*gcc|\S*clang)\b.*?), (?:GNU )?LD\b", tree.text("/proc/version"), re.IGNORECASE)
        return said.group(1) if said else ""
    return ""


def _clang(runner: Runner) -> str:
    return "" if _said(runner, "clang") else "The kernel was built with clang, and there is none. Install clang."


def _said(runner: Runner, program: str) -> str:
    try:
        told = runner.run([program, "--version"], check=False, timeout=20.0)
    except CommandFailed:
        return ""
    return told.out.splitlines()[0] if told.rc == 0 and told.out.strip() else ""


def _major(text: str) -> int:
    """The first number of the last version in a line: ``gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0`` is 13."""
    found: Sequence[str] = _VERSION.findall(text)
    return int(found[-1]) if found else 0
