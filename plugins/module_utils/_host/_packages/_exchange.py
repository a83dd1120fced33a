# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages exchanged for others in one transaction: some installed in exact versions, some removed, nothing else.

what = Exchange({"nvidia-driver": "595.91.07-1"}, ("nvidia-driver-580",))
outlook = foresee("apt", runner, what)      # writes nothing
download("apt", runner, what)               # and nothing is installed
carry_out("apt", runner, what)
"""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from ..._plan import Failure
from .._commands import CommandFailed, Done, Runner
from ._apt import ENV as QUIET
from ._apt import KEEP, LOCK
from ._shared import INSTALL, checked, pinned, told

_PREFERENCES = "/etc/apt/preferences"
_OF_DRIVER = "*nvidia* *cuda* libnvsdm*"  # with the driver's version, that is: others have numbers of their own
_APT_WHY = ("E:", "dpkg: error")
_DNF_WHY = ("Error:", "No match for argument:", "Problem", "- ", "nothing provides")
_ZYPPER_WHY = ("Problem:", "nothing provides", "No provider of", "Package '")
_APT_LINE = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[[^\]]*\])?(?: \((\S+) .*)?", re.MULTILINE)
_SOLVABLE = re.compile(r"<solvable\b[^>]*\btype=\"package\"[^>]*>")
_ATTRIBUTE = re.compile(r"\b(name|edition)=\"([^\"]*)\"")
_ARCHES = ("x86_64", "aarch64", "noarch", "i686")
_DNF_WRONG = re.compile(r"^\s*(Error: (?!Operation aborted)|Problem)", re.MULTILINE)
_SHELL_FAILED = 3  # no status that dnf itself has
_TO_ABORT = 1  # dnf's status for a transaction that was shown only


@dataclass(frozen=True)
class Exchange:
    """``pins``: package -> full version; ``remove``: what goes in the same transaction.

    ``along``: NVIDIA's version, of packages of the driver that come as dependencies. apt alone needs it: it would take
    the newest, and then tell that this does not go with the rest. ``purge``: what apt removes leaves no file of its
    configuration.
    """

    pins: Mapping[str, str] = field(default_factory=dict)
    remove: Tuple[str, ...] = ()
    along: str = ""
    purge: bool = False

    @property
    def empty(self) -> bool:
        return not self.pins and not self.remove


@dataclass(frozen=True)
class Outlook:
    """What a transaction would do: versions that come, and what goes."""

    comes: Mapping[str, str]
    goes: Tuple[str, ...]


def foresee(manager: str, runner: Runner, what: Exchange) -> Outlook:
    """What the package manager would do. Raises ``Failure`` where it cannot do it."""
    if what.empty:
        return Outlook({}, ())
    return {"apt": _apt_foresee, "dnf": _dnf_foresee, "zypper": _zypper_foresee}[manager](runner, what)


def download(manager: str, runner: Runner, what: Exchange) -> None:
    """Have everything on the host that ``carry_out`` needs, with nothing installed or removed."""
    if what.pins:
        _run(manager, runner, what, ("--download-only",) if manager != "dnf" else ("--downloadonly",), "download")


def carry_out(manager: str, runner: Runner, what: Exchange) -> None:
    """Do it, in one transaction. Raises ``Failure`` before anything is done where something else would be removed."""
    if what.empty:
        return
    others = [name for name in foresee(manager, runner, what).goes if name not in what.remove]
    if others:
        raise Failure(
            f"{', '.join(others)} would be removed too, since it cannot be beside {', '.join(list(what.pins)[:5])}. "
            f"Remove it first, if nothing needs it."
        )
    _run(manager, runner, what, (), "install")


def _run(manager: str, runner: Runner, what: Exchange, options: Sequence[str], verb: str) -> None:
    done = {"apt": _apt, "dnf": _dnf, "zypper": _zypper}[manager](runner, what, options)
    if done.rc and not (manager == "zypper" and done.rc in (102, 103)):  # a reboot or a restart of it is advised
        why = {"apt": _APT_WHY, "dnf": _DNF_WHY, "zypper": _ZYPPER_WHY}[manager]
        names = ", ".join([*what.pins, *what.remove][:8])
        raise CommandFailed(f"{manager} cannot {verb} {names}: {told(done, why)}", done)


# --- apt --------------------------------------------------------------------------------------------------------------


def _apt(runner: Runner, what: Exchange, options: Sequence[str]) -> Done:
    words = [*pinned(what.pins, "="), *(f"{name}-" for name in checked(what.remove))]
    more = ("--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages", *options)
    more += ("--purge",) if what.purge else ()
    with _preferences(what.along) as path:
        own = ("-o", f"Dir::Etc::preferences={path}") if path else ()
        argv = ["apt-get", "install", "-q", "-y", *more, *own, *LOCK, *KEEP, *words]
        return runner.run(argv, check=False, timeout=INSTALL, env=QUIET)


@contextmanager
def _preferences(version: str) -> Iterator[str]:
    """A file of preferences for one transaction, with those of the host behind ours; "" where none is needed."""
    if not version:
        yield ""
        return
    pinned({"nvidia": version}, "=")  # it looks as versions do
    with tempfile.NamedTemporaryFile("w", prefix="gpufleet-", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"Package: {_OF_DRIVER}\nPin: version {version}-*\nPin-Priority: 1001\n\n")
        with suppress(FileNotFoundError), open(_PREFERENCES, encoding="utf-8", errors="surrogateescape") as own:
            file.write(own.read())
        file.flush()
        yield file.name


def _apt_foresee(runner: Runner, what: Exchange) -> Outlook:
    done = _apt(runner, what, ("-s",))
    if done.rc:
        unmet = [line.partition(" : ")[0].strip() + " :" for line in done.out.splitlines() if " : " in line]
        raise CommandFailed(f"apt cannot do this: {told(done, (*unmet, *_APT_WHY))}", done)
    lines = _APT_LINE.findall(done.out)
    comes = {name: version for verb, name, version in lines if verb == "Inst"}
    goes = [name for verb, name, _version in lines if verb != "Inst"]
    # Of a package that goes, those for other architectures go as well: apt calls them name:i386.
    plain = (name.partition(":")[0] if name.partition(":")[0] in what.remove else name for name in goes)
    return Outlook(comes, tuple(dict.fromkeys(plain)))


# --- dnf --------------------------------------------------------------------------------------------------------------


def _dnf(runner: Runner, what: Exchange, options: Sequence[str]) -> Done:
    wanted = pinned(what.pins, "-")
    words = ["dnf", "-y", "--setopt=install_weak_deps=False", *options]
    if not what.remove:
        return runner.run([*words, "install", *wanted], check=False, timeout=INSTALL)
    # The only way to install and remove in one transaction: its shell.
    script = [f"remove {' '.join(checked(what.remove))}", *([f"install {' '.join(wanted)}"] if wanted else []), "run"]
    done = runner.run([*words, "shell"], check=False, timeout=INSTALL, stdin="\n".join([*script, "exit", ""]))
    # It ends well whatever became of its lines, and goes on with the next ones.
    failed = not done.rc and _DNF_WRONG.search(done.err)
    return Done(done.argv, _SHELL_FAILED, done.out, done.err) if failed else done


def _dnf_foresee(runner: Runner, what: Exchange) -> Outlook:
    words = ["--assumeno"]
    done = _dnf(runner, what, words)
    if done.rc not in (0, _TO_ABORT) or _DNF_WRONG.search(done.err):
        raise CommandFailed(f"dnf cannot do this: {told(done, _DNF_WHY)}", done)
    comes: Dict[str, str] = {}
    goes: List[str] = []
    removing = False
    for block in re.split(r"(?m)^(?=[A-Z][A-Za-z ]+:$)", done.out):
        heading, _newline, text = block.partition("\n")
        removing = heading.startswith("Removing")
        rows = text.split()
        for number, word in enumerate(rows):
            if word in _ARCHES and 0 < number < len(rows) - 1:
                if removing:
                    goes.append(rows[number - 1])
                elif heading.split(" ")[0].rstrip(":") in ("Installing", "Upgrading", "Downgrading"):
                    comes[rows[number - 1]] = rows[number + 1]
    return Outlook(comes, tuple(goes))


# --- zypper -----------------------------------------------------------------------------------------------------------


def _zypper(runner: Runner, what: Exchange, options: Sequence[str]) -> Done:
    words = [*pinned(what.pins, "="), *(f"!{name}" for name in checked(what.remove))]
    # "--xmlout" tells names and versions for programs.
    argv = ["zypper", "--non-interactive", "--xmlout", "install", "--no-recommends", "--oldpackage"]
    return runner.run([*argv, *options, *words], check=False, timeout=INSTALL)


def _zypper_foresee(runner: Runner, what: Exchange) -> Outlook:
    done = _zypper(runner, what, ("--dry-run",))
    if done.rc and done.rc not in (102, 103):
        raise CommandFailed(f"zypper cannot do this: {told(done, _ZYPPER_WHY)}", done)
    comes: Dict[str, str] = {}
    goes: List[str] = []
    for part in re.findall(r"<to-([a-z-]+)>(.*?)</to-\1>", done.out, re.DOTALL):
        for solvable in _SOLVABLE.findall(part[1]):
            told_of = dict(_ATTRIBUTE.findall(solvable))
            if part[0] == "remove":
                goes.append(told_of.get("name", ""))
            else:
                comes[told_of.get("name", "")] = told_of.get("edition", "")
    return Outlook(comes, tuple(goes))
