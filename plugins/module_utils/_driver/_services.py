# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that use the driver: stopped in order before it changes, masked meanwhile, and started in order after it.

What was stopped and masked is kept in a file until it runs again, so that a run after a killed one puts it right.
"""

from __future__ import annotations

import json
import time
from typing import Callable, Dict, List, Sequence, Tuple

from .._host._files import Files
from .._host._systemd import Units
from .._plan import Failure

FOLDER = "/var/lib/gpufleet/nvidia_driver"
STOPPED = f"{FOLDER}/stopped.json"

DISPLAY = tuple(f"{name}.service" for name in ("gdm", "gdm3", "lightdm", "sddm", "xdm", "display-manager"))
EXPORTERS = ("dcgm-exporter.service", "nvidia-dcgm-exporter.service")
AGENTS = ("nvsm.service", "nvidia-dcgm.service")
FABRIC = ("nvidia-imex.service", "nvidia-fabricmanager.service")
LOCAL = tuple(f"nvidia-{name}.service" for name in ("persistenced", "powerd", "gridd", "topologyd"))
WATCHER = "nvidia-cdi-refresh.path"

#: Those that use GPUs, in the order in which they are stopped: users of a service before it.
STOP_ORDER = (*EXPORTERS, *AGENTS, *FABRIC, *LOCAL, *DISPLAY, WATCHER)
#: And started: the fabric before what counts GPUs, and the watcher once the devices are there.
START_ORDER = (*LOCAL, "nvidia-fabricmanager.service", "nvidia-imex.service", "nvidia-dcgm.service", "nvsm.service",
               WATCHER, *EXPORTERS, *DISPLAY)  # fmt: skip
#: Scripts of packages start these, also where they were stopped before.
RESTARTED = (
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
)
#: What has to be up before the next is started; all others are only asked to start, since some wait for each other.
_AWAITED = (*LOCAL, *FABRIC)
_UP = 60.0  # seconds for those that were only asked to start
_PAUSE = 0.5

Progress = Callable[[str], None]


def full(name: str) -> str:
    """A unit's name; without a kind it is a service."""
    return name if "." in name else f"{name}.service"


def stop_order(running: Sequence[str], more: Sequence[str] = ()) -> Tuple[str, ...]:
    """Units that run, in the order in which they are stopped: those that the user names are workloads, so first."""
    asked = [full(name) for name in more]
    listed = [*asked, *(unit for unit in STOP_ORDER if unit not in asked)]
    return tuple(unit for unit in listed if unit in running)


def start_order(stopped: Sequence[str]) -> Tuple[str, ...]:
    """The same units, in the order in which they are started: those that only the user knows last, backwards."""
    known = [unit for unit in START_ORDER if unit in stopped]
    return (*known, *(unit for unit in reversed(list(stopped)) if unit not in START_ORDER))


class Services:
    """Stops and starts units around a change of the driver."""

    def __init__(self, units: Units, files: Files, progress: Progress) -> None:
        self._units, self._files, self._progress = units, files, progress

    def running(self, more: Sequence[str] = ()) -> Tuple[str, ...]:
        """Those of the known units, and of ``more``, that run, in the order in which they would be stopped."""
        names = list(dict.fromkeys([*(full(name) for name in more), *STOP_ORDER]))
        states = self._units.states(names)
        return stop_order([state.name for state in states if state.running], more)

    def owed(self) -> List[str]:
        """Units that an earlier run stopped or masked, and did not live to put right."""
        kept = self._kept()
        return list(dict.fromkeys([*kept["stopped"], *kept["masked"]]))

    def stop(self, order: Sequence[str], mask: Sequence[str] = RESTARTED) -> List[str]:
        """Stop these, in this order, and mask ``mask`` as far as they are there. Returns those stopped now.

        Raises Failure with those started again that were stopped.
        """
        kept = self._kept()
        there = [state.name for state in self._units.states(mask) if state.exists and not _masked(state.file)]
        running = [state.name for state in self._units.states(order) if state.running]
        stopped = [*kept["stopped"], *(name for name in running if name not in kept["stopped"])]
        self._keep({"stopped": stopped, "masked": sorted({*kept["masked"], *there})})
        try:
            for name in running:
                self._progress(f"stopping {name}")
                self._units.stop(name)
            self._units.mask(there)
        except Failure as failure:
            wrong = self.start()
            back = "What had been stopped runs again." if not wrong else " ".join(wrong)
            raise Failure(f"{failure.msg.rstrip('.')}. {back}") from None
        return running

    def unmask(self) -> None:
        """Let units be started again, before the first of them is."""
        kept = self._kept()
        if kept["masked"]:
            self._units.unmask(kept["masked"])
            self._keep({**kept, "masked": []})

    def start(self, more: Sequence[str] = ()) -> List[str]:
        """Start what was stopped, and ``more`` (new ones), in order. Returns those that did not start, as sentences.

        What did not start is owed: the next run starts it.
        """
        self.unmask()
        owed = self._kept()["stopped"]
        wrong: Dict[str, str] = {}
        asked = []
        for name in start_order([*owed, *(unit for unit in more if unit not in owed)]):
            try:
                if self._units.state(name).exists:
                    self._progress(f"starting {name}")
                    asked += [name] if self._units.start(name, wait=name in _AWAITED) else []
            except Failure as failure:
                wrong[name] = failure.msg
        wrong.update(self._not_up([name for name in asked if name not in wrong]))
        left = [name for name in owed if name in wrong]
        self._keep({"stopped": left, "masked": []})
        return list(wrong.values())

    def _not_up(self, names: Sequence[str]) -> Dict[str, str]:
        """Those that do not run after a while, each with a sentence."""
        end = time.monotonic() + _UP
        while True:
            states = [state for state in self._units.states(names) if state.active != "active"]
            waits = [state for state in states if state.active in ("activating", "reloading")]
            if not waits or time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        # One that does its work and ends, as a oneshot, is inactive and well.
        return {
            state.name: f"{state.name} does not come up ({state.active}). Look at `journalctl -u {state.name}`."
            for state in states
            if state.active != "inactive"
        }

    def _kept(self) -> Dict[str, List[str]]:
        try:
            read = json.loads(self._files.text(STOPPED) or "{}")
            lists = {key: read.get(key, []) for key in ("stopped", "masked")}
        except (ValueError, AttributeError):
            return {"stopped": [], "masked": []}
        return {
            key: [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
            for key, names in lists.items()
        }

    def _keep(self, kept: Dict[str, List[str]]) -> None:
        if not any(kept.values()):
            self._files.remove(STOPPED)
            return
        self._files.make_folder(FOLDER, 0o700)
        self._files.write(STOPPED, json.dumps(kept), 0o600)


def _masked(file_state: str) -> bool:
    return file_state in ("masked", "masked-runtime")
