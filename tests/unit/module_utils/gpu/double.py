# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose GPUs the NVML double plays, seen through the real pynvml."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._nvml import Nvml
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._partition import Outcome, Tools, mig_partition
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.tests.testbed import nvml as testbed

WRITES = ("SetMigMode", "CreateGpuInstance", "CreateComputeInstance", "InstanceDestroy")


class Host:
    """One host. ``create`` words are those of ``nvml-double create``: ``A100-SXM4-40GB``, or several."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *products: str) -> None:
        self.folder, self.state, self.log = folder, folder / "gpus", folder / "calls"
        self.programs = testbed.build()
        words = [word for product in products for word in ("--product", product, "--count", "1")]
        self.tool("create", *words, str(self.state))
        self.set("permissions=allow")
        monkeypatch.setenv("NVML_DOUBLE_STATE", str(self.state))
        monkeypatch.setenv("NVML_DOUBLE_LOG", str(self.log))
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(self.programs / testbed.LIBRARY)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self.root = folder / "root"
        (self.root / "etc/systemd/system").mkdir(parents=True)
        self.systemctl = Systemctl(self)
        self.systemd = True

    def tool(self, *arguments: str) -> str:
        command = [str(self.programs / testbed.PROGRAM), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def set(self, *arguments: str) -> None:
        self.tool("set", str(self.state), *arguments)

    def gpu(self, index: int = 0) -> dict:
        return json.loads(self.tool("show", str(self.state)))["gpus"][index]

    def calls(self) -> list[str]:
        """Functions called since the last ``forget``."""
        if not self.log.exists():
            return []
        return [json.loads(line)["function"] for line in self.log.read_text().splitlines()]

    def writes(self) -> list[str]:
        return [call for call in self.calls() if any(word in call for word in WRITES)]

    def forget(self) -> None:
        self.log.unlink(missing_ok=True)

    def tools(self, nvml=Nvml) -> Tools:
        files = Files(Root(str(self.root)))
        return Tools(nvml, self.systemctl, files, lambda: self.systemd, is_root=lambda: True)

    def run(self, check: bool = False, tools: Tools | None = None, lines: list[str] | None = None, **params) -> Outcome:
        """The module's run. Without restore at boot unless it is asked for."""
        given = {
            "state": "present",
            "busy": "refuse",
            "busy_timeout": 60,
            "foreign": "replace",
            "reset": False,
            "services": [],
            "refresh_cdi": False,
            "restore_at_boot": False,
            **params,
        }
        return mig_partition(given, check, (lines if lines is not None else []).append, tools or self.tools())

    def slices(self, index: int = 0) -> str:
        return self.run(state="exported").result.found["gpus"][index]["slices"]


class Systemctl:
    """Runs no program: answers as systemctl does of the units in ``active``, and resets the double's GPUs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.active: dict[str, str] = {}
        self.enabled: set[str] = set()
        self.ran: list[str] = []
        self.wrong: set[str] = set()

    def run(self, argv, *, check=True, timeout=60.0, env=None, stdin="") -> Done:
        argv = [word for word in argv if word != "--"]
        if argv[:2] == ["systemctl", "show"]:
            return Done(argv, 0, "\n\n".join(self._show(unit) for unit in argv[3:]), "")
        self.ran.append(" ".join(argv))
        if argv[0] == "nvidia-smi":
            self.host.tool("reset", str(self.host.state), "gpu=0")
        elif argv[1] in ("start", "stop", "restart"):
            failed = argv[2] in self.wrong and argv[1] == "start"
            self.active[argv[2]] = "inactive" if argv[1] == "stop" or failed else "active"
        elif argv[1] in ("enable", "disable"):
            (self.enabled.add if argv[1] == "enable" else self.enabled.discard)(argv[2])
        return Done(argv, 0, "", "")

    def _show(self, unit: str) -> str:
        known = unit in self.active or (self.host.root / "etc/systemd/system" / unit).exists()
        return (
            f"LoadState={'loaded' if known else 'not-found'}\nActiveState={self.active.get(unit, 'inactive')}\n"
            f"SubState=\nUnitFileState={'enabled' if unit in self.enabled else 'disabled'}\nNeedDaemonReload=no"
        )


def environment(host: Host) -> dict[str, str]:
    """For programs that load the double by its name."""
    return {**os.environ, "LD_LIBRARY_PATH": str(host.programs)}
