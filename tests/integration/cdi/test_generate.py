# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own nvidia-ctk makes CDI specifications over the NVML double; they are judged, put in place, and kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._cdi import host_paths
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._cdi import (
    CdiPlan,
    Host,
    Made,
    Wish,
    generate,
    plan,
    put,
)
from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.nvml import Double

ETC, RUN = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Machine:
    """A host whose root is a folder, with a driver in it that the NVML double plays."""

    def __init__(self, folder: Path) -> None:
        self.double = Double.create(folder, "--product", "H100-SXM5-80GB", "--count", "2")
        self.driver = str(self.double.show()["driver"])
        self.root = folder / "host"
        for path in ("etc", "run", "var", "dev", "usr/bin", LIBRARIES):
            (self.root / path).mkdir(parents=True)
        (self.root / "var/run").symlink_to("/run")
        # A path that nvidia-ctk found below the driver's root is the same file for whoever has the folder as root.
        inside = self.root / str(folder.resolve())[1:]
        inside.mkdir(parents=True)
        (inside / "host").symlink_to("/")
        for path in ("dev/null", "usr/bin/nvidia-smi", "usr/bin/nvidia-cdi-hook"):
            (self.root / path).touch(0o755)
        self.libraries(self.driver)
        self.program = programs.ensure("nvidia-ctk")
        self.files = Files(Root(str(self.root)))
        self.wish = Wish(program=str(self.program), mode="nvml", driver_root=str(self.root.resolve()))
        self.host = Host(self.driver, uuids=[gpu["uuid"] for gpu in self.double.show()["gpus"]], toolkit=(1, 20, 2))

    def libraries(self, version: str) -> None:
        """What an upgrade of the driver leaves: libraries of one version."""
        folder = self.root / LIBRARIES
        shutil.rmtree(folder)
        folder.mkdir()
        shutil.copy(self.double.library, folder / f"libnvidia-ml.so.{version}")
        (folder / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
        (folder / f"libcuda.so.{version}").touch()
        (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")

    @property
    def environment(self) -> dict[str, str]:
        return {**self.double.environment, "LD_LIBRARY_PATH": str(self.root / LIBRARIES)}

    def plan(self) -> CdiPlan:
        planned = plan(self.files, self.wish, self.host)
        planned.environment.update(self.environment)
        return planned

    def run(self) -> tuple[CdiPlan, Made, bool]:
        planned = self.plan()
        made = generate(Runner(), self.files, planned, self.wish, self.host) if planned.make else Made("", [])
        return planned, made, put(self.files, planned, made.text)

    def ctk(self, *arguments: str) -> str:
        argv = [str(self.program), "--quiet", "cdi", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True, env=self.environment).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def paths_of(value: Any) -> set[str]:
    """Every path of the host in a specification, by a whole YAML reader."""
    if isinstance(value, list):
        return {path for item in value for path in paths_of(item)}
    if not isinstance(value, dict):
        return set()
    own = value.get("hostPath") or value.get("path")
    return {own} - {None} | {path for inner in value.values() for path in paths_of(inner)}


@pytest.mark.long
@pytest.mark.rows("H079", "H080", "P023", "P024", "P025")
def test_specifications_of_nvidia_ctk_are_put_in_place_kept_and_renewed(machine: Machine) -> None:
    planned, made, changed = machine.run()
    assert (planned.make, made.findings, changed) == ("there is none", [], True)
    text = machine.files.text(ETC) or ""
    assert text == machine.ctk("generate", *planned.argv[3:])
    assert set(host_paths(text)) == paths_of(yaml.safe_load(text))
    assert len(host_paths(text)) > 4
    listed = machine.ctk("list", f"--spec-dir={machine.root}/etc/cdi").split()
    assert set(listed) == {f"nvidia.com/gpu={name}" for name in ("0", "1", "all", *(machine.host.uuids or ()))}
    planned, _made, changed = machine.run()
    assert (planned.make, planned.findings, changed) == ("", [], False)

    # NVML does not answer, and no GPU is there: what is there stays, though it has become stale.
    (machine.root / "usr/bin/nvidia-smi").unlink()
    for state, why in (("unloaded", "Driver Not Loaded"), ("mismatch", "Driver/library version mismatch")):
        machine.double.set(f"driver_state={state}")
        planned, made, changed = machine.run()
        assert "/usr/bin/nvidia-smi, which the host does not have" in planned.make
        assert [one.id for one in made.findings] == ["cdi_refused"]
        assert why in made.findings[0].detail
        assert "level=error" not in made.findings[0].detail
        assert not changed
        assert machine.files.text(ETC) == text
    machine.double.set("driver_state=loaded")
    (machine.root / "usr/bin/nvidia-smi").touch(0o755)
    assert machine.plan().make == ""

    # An upgrade of the driver.
    machine.double.set("driver=590.11.02")
    machine.libraries("590.11.02")
    machine.host = Host("590.11.02", uuids=machine.host.uuids, toolkit=(1, 20, 2))
    planned, made, changed = machine.run()
    assert f"libraries of driver {machine.driver}" in planned.make
    assert (made.findings, changed) == ([], True)
    assert machine.driver not in (machine.files.text(ETC) or "")

    # The old one, in a place where it hides the new one.
    machine.files.make_folder("/var/run/cdi")
    machine.files.write(RUN, text)
    planned, _made, changed = machine.run()
    assert (planned.make, planned.remove, changed) == ("", [RUN], True)
    assert machine.plan().actions == []
