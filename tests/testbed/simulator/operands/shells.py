# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shells that only wait for files (the toolkit-validation init containers), and main containers that only stay."""

from __future__ import annotations

from ..context import Ctx, Done, Up
from . import Program


def step(c: Ctx) -> Up | Done:
    script = c.script()
    if script is None:
        return Up()
    if c.follow(script) and script.forever:
        return Up()
    return Done()


WAITER = Program(step)
