# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as numbers, for comparison part by part and never as text."""

from __future__ import annotations

import re
from typing import Optional, Tuple

CUDA_MINOR = re.compile(r"(\d{2})\.(\d{1,2})\Z")
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(?![\d.])")
_DRIVER = re.compile(r"(\d{3})(\.\d+)*")


def version_key(text: str) -> Tuple[int, ...]:
    """``580.95.05`` -> (580, 95, 5), ``v1.20.2-1`` -> (1, 20, 2): what follows the numbers is a packager's.

    Raises ValueError with the text where it does not begin with a version.
    """
    found = _NUMBERS.match(text)
    if not found:
        raise ValueError(f"{text!r} is no version: versions are numbers with dots between, like 580.95.05")
    return tuple(int(part) for part in found.group(1).split("."))


def version_parts(version: str) -> Tuple[int, ...]:
    """Every number of a version; () where there is none: ``v25.10.1`` -> (25, 10, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def branch_of(version: str) -> Optional[int]:
    """Branch of a driver version (``595.91.07``, ``595``); None when the text is not such a version."""
    found = _DRIVER.fullmatch(version)
    return int(found.group(1)) if found else None
