# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that a container's script keeps from the program which it starts, by a list with lines ``NODE WHAT``.

Scripts are not run here. One that reads what the driver tells of each GPU, and is given a list, is taken for one that
does this: a UUID, a PCI address or a product's name that the list has for the node is a GPU that the program does not
see. With a third word, ``indices``, it changes no file, so it needs no programs beside the shell.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import shell
from .node import Gpu

if TYPE_CHECKING:
    from .context import Ctx

_CALL = re.compile(r"\bsh (/\S+) (/\S+)(?: (indices)\b)?")


class HideError(Exception):
    """The script ends with this message."""


def hidden(c: Ctx) -> set[str]:
    """UUIDs of the GPUs that the container's program does not see."""
    script = shell.of_argv(c.container.argv)
    call = _CALL.search(script.text) if script is not None else None
    if call is None:
        return set()
    text, listed = c.read(call.group(1)), c.read(call.group(2))
    if not c.env.get("NODE_NAME"):
        raise HideError("NODE_NAME is not set: the list is read by it")
    if text is None or listed is None:
        raise HideError(f"sh: 0: cannot open {call.group(1) if text is None else call.group(2)}: No such file")
    if "/proc/driver/nvidia/gpus/" not in text:
        return set()
    node = c.env["NODE_NAME"]
    wanted = [line.partition(" ")[2] for line in listed.splitlines() if line.partition(" ")[0] == node]
    if not wanted:
        return set()
    if not call.group(3):
        _can_hide(c)
    there = c.node.gpus if c.node.driver_loaded else []
    found = {gpu.uuid for gpu in there if _names(gpu) & set(wanted)}
    if not found:
        raise HideError(f"{node} has no GPU that hidden_gpus names ({', '.join(wanted)}), so nothing is started")
    if len(found) == len(there):
        names = ", ".join(wanted)
        raise HideError(f"hidden_gpus names all {len(there)} GPUs of {node} ({names}), so nothing is started")
    return found


def _can_hide(c: Ctx) -> None:
    if "distroless" in (c.image.version if c.image else ""):
        raise HideError("rm: not found")
    if c.container.place("/dev") is not None:
        raise HideError("/dev is not this container's own")


def _names(gpu: Gpu) -> set[str]:
    return {gpu.uuid, gpu.address, gpu.product.name}
