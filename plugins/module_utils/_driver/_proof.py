# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""That the driver works: what the kernel says, what nvidia-smi says in time, and the state of the fabric."""

from __future__ import annotations

import re
import time
from typing import Callable, List, Optional, Sequence

from .._host._commands import PATH, CommandFailed, Done, Runner
from .._host._files import Files
from .._host_state import _driver, _pci, _smi
from .._plan import Check
from ._kernel import tree_of

SMI_TIME = 60.0  # seconds: the first call starts every GPU where persistence mode is off
FABRIC_TIME = 180.0
_PAUSE = 2.0
_NOT_OURS = ("vfio-pci", "pci-stub")
_FABRIC = re.compile(r"<fabric>\s*<state>([^<]*)</state>\s*<status>([^<]*)</status>")

LOADED = "driver.loaded"
SMI = "driver.nvidia_smi"
COUNT = "driver.gpus"
FABRIC = "driver.fabric"


def loaded(files: Files, version: str, flavour: str = "") -> Check:
    """The kernel's own word for the version, and for the flavour where one is given."""
    found = _driver.loaded(tree_of(files))
    if not found.version:
        return Check(LOADED, False, f"no driver is loaded, {version} is wanted")
    told = f"{found.version} {found.flavour}".strip()
    right = found.version == version and flavour in ("", found.flavour)
    return Check(
        LOADED, right, f"{told} is loaded" + ("" if right else f", {version} {flavour}".rstrip() + " is wanted")
    )


def expected(files: Files) -> int:
    """GPUs of this host that the driver should have: all but those for virtual machines, and those left out."""
    tree = tree_of(files)
    out = {one.bus_id for one in _driver.processors(tree) if one.excluded}
    return len([gpu for gpu in _pci.read(tree).gpus if gpu.driver not in _NOT_OURS and gpu.bus_id not in out])


def smi_program(files: Files) -> str:
    """Where nvidia-smi is, "" where it is nowhere."""
    return next((place for place in (f"{folder}/nvidia-smi" for folder in PATH.split(":")) if files.exists(place)), "")


def nvidia_smi(runner: Runner, files: Files, version: str, timeout: float = SMI_TIME) -> List[Check]:
    """One call of nvidia-smi, judged by its status and its words: that it works, and how many GPUs it has."""
    program = smi_program(files)
    if not program:
        missing = _smi.verdict(127, "")
        return [Check(SMI, False, f"{missing.meaning}. {missing.remedy}")]
    done = _call(runner, [program, *_smi.QUERY], timeout)
    if done is None:
        return [Check(SMI, False, f"{_smi.LATE.meaning}. {_smi.LATE.remedy}")]
    ended = _smi.verdict(done.rc, done.out, done.err)
    if ended.state != _smi.OK:
        return [Check(SMI, False, f"{ended.meaning}. {ended.remedy}".rstrip())]
    rows = _smi.gpus(done.out)
    others = sorted({row["driver_version"] for row in rows} - {version})
    told = f"tells of driver {', '.join(others)}, {version} is wanted" if others else f"works with {version}"
    want = expected(files)
    count = f"{len(rows)} of {want} GPUs" + ("" if len(rows) == want else ": see the kernel's log for the others")
    return [Check(SMI, not others, told), Check(COUNT, len(rows) == want, count)]


def _call(runner: Runner, argv: Sequence[str], timeout: float) -> Optional[Done]:
    """How it ended; None where it did not in time."""
    try:
        return runner.run(argv, check=False, timeout=timeout)
    except CommandFailed as failure:
        return failure.how if failure.how.rc in (126, 127) else None


def fabric(
    runner: Runner, files: Files, limit: float = FABRIC_TIME, sleep: Callable[[float], None] = time.sleep
) -> Check:
    """The fabric of every GPU is completed; waited for with a limit, since the fabric manager needs its time."""
    program = smi_program(files)
    end = time.monotonic() + limit
    while True:
        done = _call(runner, [program, "-q", "-x"], SMI_TIME) if program else None
        if done is None:
            return Check(FABRIC, False, "nvidia-smi does not tell the fabric's state in time")
        states = _FABRIC.findall(done.out)
        wrong = [f"{state} ({status})" for state, status in states if state != "Completed" or status != "Success"]
        if states and not wrong:
            return Check(FABRIC, True, f"completed on {len(states)} GPUs")
        waits = any(state in ("In Progress", "Not Started") for state, _status in states)
        if not waits or time.monotonic() >= end:
            break
        sleep(_PAUSE)
    told = ", ".join(sorted(set(wrong))) or "no GPU tells its state"
    hint = "See `journalctl -u nvidia-fabricmanager`: its version has to be the driver's."
    return Check(FABRIC, False, f"the fabric is not completed: {told}. {hint}")


def prove(runner: Runner, files: Files, version: str, flavour: str = "", has_fabric: bool = False) -> List[Check]:
    """All of it, in this order; what cannot be asked any more after a failure is left out."""
    checks = [loaded(files, version, flavour)]
    if checks[0].ok:
        checks += nvidia_smi(runner, files, version)
    if has_fabric and all(check.ok for check in checks):
        checks.append(fabric(runner, files))
    return checks
