# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What planners of runtimes take and give. They read files through ``Reader`` and change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from .._plan import Failure, Finding

Version = Optional[Tuple[int, ...]]  # of a daemon: major, minor, patch; None where it cannot be asked

_LOOKED_UP = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
HEADER = "# Made by gpufleet.nvidia (container_toolkit). Changes in this file are lost; see the module's options.\n"


class Reader(Protocol):
    """Files of a host or of an image tree."""

    def text(self, path: str) -> Optional[str]:
        """The content; None where there is no such file. Raises Failure."""

    def glob(self, pattern: str) -> List[str]:
        """Files that a pattern matches, sorted."""


@dataclass(frozen=True)
class Wanted:
    """What a runtime's configuration has to give.

    ``default``: whether pods and containers that name no runtime get this one, None to leave that as it is. ``cdi``:
    have the daemon inject CDI devices. ``systemd_cgroup``: the kubelet uses systemd, where no runtime tells. ``nri``:
    no runtime, but the interface for NRI plugins.
    """

    name: str = "nvidia"
    program: str = "/usr/bin/nvidia-container-runtime"
    default: Optional[bool] = None
    cdi: bool = False
    systemd_cgroup: bool = False
    nri: bool = False


@dataclass(frozen=True)
class Change:
    """A file before and after; None where there is none."""

    path: str
    before: Optional[str]
    after: Optional[str]
    reason: str


@dataclass
class Proposal:
    """What has to change for the wanted end state.

    ``low_level``: programs of the daemon's own runtime, which the NVIDIA runtime has to call; ``earlier``: name of the
    default runtime that the change replaces, "" where the daemon's own default stood, None where none is replaced.
    """

    changes: List[Change] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    low_level: List[str] = field(default_factory=list)
    earlier: Optional[str] = None

    def change(self, path: str, before: Optional[str], after: Optional[str], reason: str) -> None:
        """Add a change, unless it is none."""
        if before != after:
            self.changes.append(Change(path, before, after, reason))


class Broken(Failure):
    """A file that its daemon cannot read either, or that says something which it must not."""


def table(value: Any) -> Dict[str, Any]:
    """A table, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def at(data: Mapping[str, Any], *path: str) -> Any:
    """What stands at a path; None where nothing does."""
    here: Any = data
    for key in path:
        if not isinstance(here, dict) or key not in here:
            return None
        here = here[key]
    return here


def same_program(said: str, program: str) -> bool:
    """Whether a configuration names this program, by its path or by a name that daemons look up."""
    folder, slash, name = program.rpartition("/")
    return said == program or (slash == "/" and said == name and folder in _LOOKED_UP)


def demand(file: str, data: Mapping[str, Any], *shapes: Tuple[Tuple[str, ...], type]) -> None:
    """Refuse a file that has another type of value at a path than its daemon reads; ``*`` is every key of a table."""
    for path, kind in shapes:
        for place, value in _all_at(data, path):
            if not isinstance(value, kind):
                allowed = {"dict": "a table", "list": "a list of texts", "str": "a text"}[kind.__name__]
                raise Broken(f"{file}: {place} is {value!r:.60}; allowed is {allowed}. It is left alone. Mend it.")


def _all_at(data: Any, path: Sequence[str], place: str = "") -> Iterator[Tuple[str, Any]]:
    if not path:
        yield place, data
    elif isinstance(data, dict):
        for key in data if path[0] == "*" else [path[0]]:
            if key in data:
                yield from _all_at(data[key], path[1:], f"{place}.{key}".lstrip("."))


def meant(value: Any) -> Any:
    """A value without what a daemon takes for not given: empty texts, tables and lists, zeros, false."""
    if isinstance(value, Mapping):
        return {key: told for key, told in ((key, meant(one)) for key, one in value.items()) if told}
    return value or None


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any], join_lists: bool = False) -> Dict[str, Any]:
    """``below`` with everything that ``above`` says, table by table; lists are replaced, or joined without repeats."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = overlaid(old, value, join_lists)
        elif join_lists and isinstance(old, list) and isinstance(value, list):
            merged[key] = old + [one for one in value if one not in old]
        else:
            merged[key] = value
    return merged
