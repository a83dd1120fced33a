# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the NVML double into a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from . import PROGRAM, ProgramError, copy_to, say

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: nvml FOLDER")
    try:
        copy_to(Path(sys.argv[1]))
    except ProgramError as error:
        sys.exit(str(error))
    say(f"NVML double: {Path(sys.argv[1]) / PROGRAM}")
