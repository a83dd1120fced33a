# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of modules that tell a person something and change nothing."""

from __future__ import annotations

from .._stack._info import InfoResult


class ShownResult(InfoResult):
    """Its findings are in what was shown: they are not given as warnings once more."""

    shown = True
