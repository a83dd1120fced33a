# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that the double plays, seen by the real pynvml in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double

Make = Callable[..., Double]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """``make("H200-SXM5-141GB", 2, "T4", 1)``: a host with these GPUs; pynvml is initialised on it."""

    def host(*products: object) -> Double:
        pairs = zip(products[::2], products[1::2], strict=True)
        double = Double.create(tmp_path, *(text for p, n in pairs for text in ("--product", str(p), "--count", str(n))))
        monkeypatch.setenv("NVML_DOUBLE_STATE", str(double.state))
        monkeypatch.setenv("NVML_DOUBLE_LOG", str(double.log))
        if pynvml.nvmlLib is None:
            pynvml.nvmlLib = ctypes.CDLL(str(double.library))
        pynvml.nvmlInit()
        return double

    yield host
    pynvml.nvmlLib.nvmlInit_v2()
    while not pynvml.nvmlLib.nvmlShutdown():
        pass


def gpu(index: int = 0) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)
