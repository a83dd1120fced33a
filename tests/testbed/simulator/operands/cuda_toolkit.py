# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's CUDA image: a shell in it may copy /usr/local/cuda to the host. What it holds is told by its tag."""

from __future__ import annotations

import posixpath
import re

from ..context import Crash, Ctx, Done, Up
from . import Program


def step(c: Ctx) -> Up | Done:
    """A script that ends by ``ln -sfn VERSION LINK``: it has copied the toolkit to a folder beside the link."""
    script = c.script()
    if script is None or "cp -a /usr/local/cuda/." not in script.text:
        raise Crash("ln: missing operand: nothing was copied")
    link = script.command[-1]
    version = c.need_env("TOOLKIT_VERSION", "the copy has no name")
    if c.container.user != 0:
        raise Crash(f"cp: cannot create directory '{posixpath.dirname(link)}': Permission denied")
    place = c.need_mount(posixpath.dirname(link), "the toolkit would stay in the container", writable=True)
    c.spend("copying /usr/local/cuda", 20)
    held = re.sub(r"-.*$", "", c.container.image.rpartition(":")[2])
    c.node.write(f"{place.path}/{version}/version.json", f'{{"cuda": {{"version": "{held}"}}}}')
    c.node.write(f"{place.path}/current", f"link to {version}")
    return Done()


PROGRAM = Program(step)
