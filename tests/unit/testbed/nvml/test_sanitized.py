# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other tests of the double again, with a build that stops at every wrong access and every undefined operation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed import nvml


@pytest.mark.long
def test_no_wrong_access_and_nothing_undefined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build takes the place of the usual one in a cache of its own, so the tests find it."""
    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path))
    folder = nvml.location()
    folder.mkdir(parents=True)
    nvml.compile_into(folder, "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    preload = [
        subprocess.run(
            [nvml.compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    # Python's own memory is none of ours to judge.
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent), "-m", "not long"],
        env={**os.environ, "LD_PRELOAD": " ".join(preload)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
