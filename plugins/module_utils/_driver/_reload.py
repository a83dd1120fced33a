# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the driver of a running host can be exchanged without a reboot: the steps, or the reasons why not.

Pure: what is found goes in, a decision comes out, before anything is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Sequence, Tuple

from . import _modules, _users
from ._modules import Loaded
from ._services import RESTARTED, full, start_order, stop_order
from ._users import User

#: Xid codes after which a GPU only works again after a reboot.
FATAL_XIDS = (62, 79)


@dataclass(frozen=True)
class ReloadFacts:
    """What is known of a host. ``modules``: loaded ones, ``users``: processes with GPUs' files open, ``running``: units
    that run. ``wanted``: modules to be loaded afterwards.

    ``persistence``: persistence mode is on without its daemon. The rest are circumstances: ``module_for_kernel`` is
    whether a module for the running kernel is there, or will be; ``rival`` why nouveau cannot be unloaded; ``console``
    the frame buffer of the GPU that the console is on; ``passthrough`` and ``lost`` are bus ids; ``fabric``: the GPUs
    are in an NVLink domain with those of other hosts.
    """

    modules: Mapping[str, Loaded] = field(default_factory=dict)
    users: Tuple[User, ...] = ()
    running: Tuple[str, ...] = ()
    wanted: Tuple[str, ...] = ("nvidia", "nvidia_uvm")
    kernel: str = ""
    module_for_kernel: bool = True
    persistence: bool = False
    mok_pending: bool = False
    rival: str = ""
    console: str = ""
    passthrough: Tuple[str, ...] = ()
    vgpu_guests: bool = False
    xids: Tuple[int, ...] = ()
    lost: Tuple[str, ...] = ()
    recovery_action: str = ""
    coherent_memory_online: bool = False
    fabric: bool = False
    sees_all_processes: bool = True


@dataclass(frozen=True)
class Reload:
    """Steps in order (stop, mask, persistence off, unload, load, start), or reasons for a reboot; never both.

    ``holders``: those of the reasons that end when somebody stops a program, so that waiting for it helps.
    """

    stop: Tuple[str, ...] = ()
    mask: Tuple[str, ...] = ()
    persistence_off: bool = False
    unload: Tuple[str, ...] = ()
    load: Tuple[str, ...] = ()
    start: Tuple[str, ...] = ()
    reasons: Tuple[str, ...] = ()
    holders: Tuple[str, ...] = ()

    @property
    def in_place(self) -> bool:
        return not self.reasons

    @property
    def waiting_helps(self) -> bool:
        """Whether there is nothing in the way but programs that will end."""
        return bool(self.reasons) and self.reasons == self.holders


def decide(found: ReloadFacts) -> Reload:
    """Steps that end with everything loaded and started, or the reasons why the host has to be rebooted."""
    stop = stop_order(found.running)
    holders = _holders(found, stop) if found.modules else []
    reasons = [*_circumstances(found), *(_occupied(found) if found.modules else []), *holders]
    if reasons:
        return Reload(reasons=tuple(reasons), holders=tuple(holders))
    return Reload(
        stop=stop,
        mask=RESTARTED,
        persistence_off=found.persistence and bool(found.modules),
        unload=tuple(_modules.order_of(found.modules)),
        load=load_order(found.wanted),
        start=start_order(stop),
    )


def load_order(wanted: Sequence[str]) -> Tuple[str, ...]:
    """Modules in the order in which they are loaded; ``nvidia`` is always among them."""
    asked = {"nvidia", *(_modules.plain(name) for name in wanted)}
    known = [name for name in _modules.LOAD_ORDER if name in asked]
    return (*known, *sorted(asked - set(known)))


def _circumstances(found: ReloadFacts) -> List[str]:
    """Reasons that no stopping of programs removes, whether a driver is loaded or not."""
    kernel = found.kernel or "that runs"
    fatal = sorted(set(found.xids) & set(FATAL_XIDS))
    told: Dict[str, bool] = {
        f"The driver has no module for the kernel {kernel}: it is for another one, which has to be booted first.": (
            not found.module_for_kernel
        ),
        "The key that signs the modules waits to be confirmed at the console, at the next boot.": found.mok_pending,
        found.rival: bool(found.rival),
        f"GPUs are given to virtual machines ({', '.join(found.passthrough)}).": bool(found.passthrough),
        "Virtual machines use vGPUs of this host.": found.vgpu_guests,
        f"GPUs do not answer any more ({', '.join(found.lost)}).": bool(found.lost),
        f"The kernel's log has Xid {', '.join(map(str, fatal))}: the GPU comes back with a reboot only.": bool(fatal),
        f"The driver asks for it: GPU recovery action {found.recovery_action}.": (
            "reboot" in found.recovery_action.lower()
        ),
    }
    return [sentence for sentence, holds in told.items() if holds]


def _occupied(found: ReloadFacts) -> List[str]:
    """Reasons why the modules that are loaded cannot go, beside processes."""
    unknown = _modules.strangers(found.modules)
    stuck = [user for user in found.users if user.stuck]
    uncounted = [name for name, module in found.modules.items() if module.refcnt < 0]
    told: Dict[str, bool] = {
        f"The console is on the GPU ({found.console}), and nvidia_drm draws it.": bool(found.console),
        f"The kernel module {', '.join(unknown)} stands on NVIDIA's, and is none that is known here.": bool(unknown),
        f"{_users.told(stuck)} waits in the kernel for a GPU, and no signal ends it.": bool(stuck),
        "Memory of GPUs is in use as memory of the system (a NUMA node of GH200, GB200 or GB300).": (
            found.coherent_memory_online
        ),
        "The GPUs are in an NVLink domain of several hosts, and all of them have to change together.": found.fabric,
        f"The kernel does not count who uses {', '.join(uncounted)}, so they cannot be unloaded safely.": (
            bool(uncounted)
        ),
        "Only processes of this container are seen, so nobody knows who uses the GPUs.": not found.sees_all_processes,
    }
    return [sentence for sentence, holds in told.items() if holds]


def _holders(found: ReloadFacts, stop: Sequence[str]) -> List[str]:
    """Processes that go on when the units are stopped; or that something holds the modules that nobody sees."""
    left = [user for user in found.users if not user.stuck and (user.container or full(user.unit) not in stop)]
    if left:
        return [f"{user.told()} uses GPUs. {_users.hint([user])}" for user in left]
    busy = _modules.used(found.modules)
    explained = found.users or found.persistence or found.console or stop
    if busy and not explained:
        what = f"Something that is no process of this host uses {', '.join(busy)}"
        return [f"{what} ({found.modules[busy[0]].users} times). Stop containers and virtual machines with GPUs."]
    return []
