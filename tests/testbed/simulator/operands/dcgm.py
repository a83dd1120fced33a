# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standalone DCGM (gpu-operator.md 7.6): ``nv-hostengine`` on port 5555."""

from __future__ import annotations

from ..context import Ctx, Done, Up
from . import Program


def step(c: Ctx) -> Up | Done:
    c.need_gpu("nv-hostengine")
    c.mem["watched"] = [gpu.uuid for gpu in c.gpus]
    return Up(listens={5555: ()})


PROGRAM = Program(step)
