# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info as Ansible starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.host_state.trees import grow, recorded


def run_module(root: Path | str, fails: bool = False, **more: Any) -> dict[str, Any]:
    """The module as Ansible starts it."""
    arguments = {"ANSIBLE_MODULE_ARGS": {"root": str(root), "_ansible_remote_tmp": str(Path(root).parent), **more}}
    done = subprocess.run(
        [sys.executable, "-m", "ansible_collections.gpufleet.nvidia.plugins.modules.gpu_info"],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("name", ["", "2xh200"])
def test_the_module_returns_what_it_documents(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    grow(root, recorded(name) if name else {})
    answer = run_module(root)
    assert undocumented("gpu_info", answer) == []
    assert answer["changed"] is False
    checked = run_module(root, _ansible_check_mode=True)
    assert (checked["found"], checked["findings"]) == (answer["found"], answer["findings"])


@pytest.mark.parametrize(
    ("root", "more", "says"),
    [
        ("nowhere", {}, "root is 'nowhere'"),
        ("/proc/version", {}, "root is '/proc/version'"),
        ("/", {"command_timeout": 0}, "command_timeout is 0"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_key_and_value(root: str, more: dict[str, Any], says: str) -> None:
    answer = run_module(root, fails=True, **more)
    assert answer["msg"].startswith(says)
    assert answer["msg"].endswith("Nothing has been read.")
