# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SELinux keeps podman's containers from device files, until its boolean ``container_use_devices`` lets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional

from .._host._commands import Runner
from .._host._files import Files
from .._host._journal import Journal
from .._plan import ERROR, INFO, Action, Check, Finding

BOOLEAN = "container_use_devices"
NOTE = f"selinux:{BOOLEAN}"
_BOOLEANS, _ENFORCE = "/sys/fs/selinux/booleans/", "/sys/fs/selinux/enforce"


def state(files: Files) -> Optional[bool]:
    """Whether the boolean is on; None where SELinux is off, or its policy has no such boolean."""
    said = (files.text(_BOOLEANS + BOOLEAN) or "").split()
    return said[0] == "1" if said else None


def enforces(files: Files) -> bool:
    """Whether SELinux refuses, and does not only write down what it would."""
    return (files.text(_ENFORCE) or "").strip() == "1"


@dataclass
class Devices:
    """What is to be done about the boolean. ``wanted``: None leaves it as it is."""

    wanted: Optional[bool]
    findings: List[Finding] = field(default_factory=list)
    actions: List[Action] = field(default_factory=list)

    def carry_out(self, runner: Runner, journal: Journal) -> List[str]:
        """Set it, now and for the next boots; ids of what was done. Raises Failure."""
        if not self.actions:
            return []
        journal.note(NOTE, not self.wanted)
        _set(runner, bool(self.wanted))
        return [one.id for one in self.actions]

    def prove(self, files: Files) -> List[Check]:
        """As the kernel has it."""
        if not self.actions:
            return []
        return [Check("selinux", state(files) is self.wanted, f"{BOOLEAN} is {_word(state(files))}")]


def plan(files: Files, wanted: Optional[bool], podman: bool) -> Devices:
    """What the boolean needs. ``podman``: it is among the runtimes."""
    now, devices = state(files), Devices(wanted)
    if wanted is None:
        if podman and now is False and enforces(files):
            detail = f"SELinux keeps podman's containers from GPUs: {BOOLEAN} is off"
            remedy = "Set selinux_devices: true, or give containers --security-opt=label=disable"
            devices.findings.append(Finding("selinux_refuses_devices", INFO, detail, "podman", remedy=remedy))
    elif now is None:
        if wanted:
            detail = f"SELinux is not on here, or its policy has no {BOOLEAN}"
            remedy = "Leave it out, or install container-selinux"
            devices.findings.append(Finding("no_selinux_boolean", ERROR, detail, "", "selinux_devices", remedy))
    elif now is not wanted:
        reason = "as asked, for containers that get GPUs by CDI"
        devices.actions.append(Action("selinux", "update", BOOLEAN, reason, False, _word(now), _word(wanted)))
    return devices


def not_here(wanted: Optional[bool]) -> Devices:
    """For an image tree, and for a host that systemd does not run: the boolean is the running kernel's."""
    if not wanted:
        return Devices(None)
    detail = "the boolean is set on a host that runs, by systemd; this is an image tree, or has none"
    remedy = "Leave it out here, and set it on the running host"
    return Devices(None, [Finding("no_selinux_boolean", ERROR, detail, "", "selinux_devices", remedy)])


def back(notes: Mapping[str, Any], files: Files) -> List[Action]:
    """What gives the boolean back."""
    if NOTE not in notes or state(files) in (None, notes[NOTE]):
        return []
    return [Action("selinux", "restore", BOOLEAN, "as it was found", False, None, _word(bool(notes[NOTE])))]


def give_back(runner: Runner, notes: Mapping[str, Any]) -> None:
    """Set it to what it was. Raises Failure."""
    _set(runner, bool(notes[NOTE]))


def _set(runner: Runner, value: bool) -> None:
    runner.run(["setsebool", "-P", BOOLEAN, _word(value)], timeout=300)  # -P builds the policy anew


def _word(value: Optional[bool]) -> str:
    return {None: "not there", True: "on", False: "off"}[value]
