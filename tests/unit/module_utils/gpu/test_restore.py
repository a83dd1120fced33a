# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout comes back at boot, by a program that needs neither Ansible nor an installed pynvml; absent ends that."""

from __future__ import annotations

import json
import subprocess
import sys

import pynvml
import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _kept as kept
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _restore as restore

from .double import environment

LAYOUT = [{"gpus": [0], "instances": [{"profile": "3g.71gb", "compute": [2, 1]}, {"profile": "1g.18gb", "start": 2}]}]
PICTURE = "[------][1g][--][3g:2c+1c------]"


def tree(host) -> list[str]:
    return sorted(str(path.relative_to(host.root)) for path in host.root.rglob("*"))


def boot(host) -> subprocess.CompletedProcess:
    """The driver comes up new, and the unit's command runs."""
    host.tool("reboot", str(host.state))
    program, layout = (str(host.root) + path for path in (restore.PROGRAM, restore.LAYOUT))
    # Without the environment's packages: what it needs, it has in it.
    command = [sys.executable, "-I", "-S", program, layout]
    return subprocess.run(command, env=environment(host), capture_output=True, text=True, check=False)


def devices(host) -> set:
    found = host.run(state="exported").result.found["gpus"]
    return {part["uuid"] for gpu in found for each in gpu["instances"] for part in each["compute"]}


@pytest.mark.rows("MH-06", "P083")
def test_the_layout_is_given_back_at_boot_with_the_same_uuids(host_with):
    host = host_with("H200-SXM5-141GB", "T4")
    outcome = host.run(layout=LAYOUT, restore_at_boot=True)
    assert [a.id for a in outcome.result.plan] == [
        "gpu-0",
        "restore-mig-restore.pyz",
        "restore-layout.json",
        "restore-gpufleet-mig-restore.service",
    ]
    assert host.systemctl.ran == ["systemctl daemon-reload", "systemctl enable gpufleet-mig-restore.service"]
    before = devices(host)
    assert len(before) == 3
    done = boot(host)
    assert done.returncode == 0, done.stderr
    assert host.slices() == PICTURE
    assert devices(host) == before
    host.forget()
    assert not host.run(layout=LAYOUT, restore_at_boot=True).result.changed
    assert host.writes() == []


@pytest.mark.rows("MH-06")
def test_the_unit_comes_before_whatever_looks_at_gpus():
    text = restore.unit_text("/usr/bin/python3")
    assert f"ExecStart=/usr/bin/python3 {restore.PROGRAM} {restore.LAYOUT}\n" in text
    before = " ".join(line for line in text.splitlines() if line.startswith("Before="))
    for name in ("kubelet", "nvidia-dcgm", "nvidia-cdi-refresh", "containerd"):
        assert f"{name}.service" in before
    assert "WantedBy=multi-user.target" in text


@pytest.mark.rows("MH-06", "ML-12")
def test_check_mode_writes_no_file_and_absent_takes_all_away(host_with):
    host = host_with("H200-SXM5-141GB")
    empty = tree(host)
    checked = host.run(check=True, layout=LAYOUT, restore_at_boot=True)
    assert tree(host) == empty
    real = host.run(layout=LAYOUT, restore_at_boot=True)
    assert checked.result.plan == real.result.plan
    assert (host.root / restore.LAYOUT[1:]).stat().st_mode & 0o777 == 0o600
    assert (host.root / "var/lib/gpufleet/mig").stat().st_mode & 0o777 == 0o700
    full = tree(host)
    assert len(host.run(check=True, state="absent").result.plan) == 3
    assert tree(host) == full
    host.forget()
    gone = host.run(state="absent")
    assert gone.result.changed
    assert [check.ok for check in gone.result.verified] == [True]
    assert host.calls() == []  # GPUs stay as they are
    assert [path for path in tree(host) if "gpufleet" in path] == []
    assert "gpufleet-mig-restore.service" not in host.systemctl.enabled
    assert not host.run(state="absent").result.changed


def test_gpus_of_other_runs_stay_in_the_kept_layout(host_with):
    host = host_with("H200-SXM5-141GB", "H200-SXM5-141GB")
    host.run(layout=[{"gpus": [0], "profiles": {"1g.18gb": 1}}], restore_at_boot=True)
    host.run(layout=[{"gpus": [1], "profiles": {"2g.35gb": 1}}], restore_at_boot=True)
    assert boot(host).returncode == 0
    found = host.run(state="exported").result.found["gpus"]
    assert [gpu["slices"][:4] for gpu in found] == ["[1g]", "[2g-"]


def test_a_layout_that_waits_for_a_reboot_is_made_at_boot(host_with):
    host = host_with("A100-SXM4-40GB")
    host.set("gpu=0", "mode_change=reboot")
    host.run(layout=[{"profiles": {"1g.5gb": 2}}], restore_at_boot=True)
    assert host.slices() == "[MIG off]"
    assert boot(host).returncode == 0
    assert host.slices() == "[1g][1g][----------------------]"


def test_one_gpus_trouble_stops_no_other_and_is_told(host_with):
    host = host_with("H200-SXM5-141GB", "H200-SXM5-141GB")
    host.run(layout=[{"profiles": {"1g.18gb": 1}}], restore_at_boot=True)
    path = host.root / restore.LAYOUT[1:]
    document = json.loads(path.read_text())
    first = host.run(state="exported").result.found["gpus"][0]["uuid"]
    document["gpus"][first]["instances"][0]["profile"] = "9g.99gb"
    document["gpus"]["GPU-gone"] = {"enabled": True, "instances": []}
    path.write_text(json.dumps(document))
    done = boot(host)
    assert done.returncode == 1
    assert "GPU 0: there is no profile 9g.99gb" in done.stderr
    assert "GPU GPU-gone is not there" in done.stderr
    assert host.slices(1).startswith("[1g]")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "\udcff{", '{"version": 2, "gpus": {}}', '{"version": 1, "gpus": {"a": {}}}'],
    ids=["empty", "list", "no UTF-8", "version", "keys"],
)
def test_a_broken_layout_file_is_told_and_set_aside_by_the_next_run(host_with, text):
    host = host_with("H200-SXM5-141GB")
    host.run(layout=LAYOUT, restore_at_boot=True)
    path = host.root / restore.LAYOUT[1:]
    good = path.read_text()
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = boot(host)
    assert done.returncode == 1
    assert "kept layout" in done.stderr
    aside = host.root / restore.BROKEN[1:]
    for check in (True, False):
        (finding,) = host.run(check=check, layout=LAYOUT, restore_at_boot=True).result.findings
        assert (finding.id, finding.severity) == ("mig.kept-broken", "warning")
        assert f"{restore.LAYOUT} is replaced, and kept as {restore.BROKEN}: the kept layout" in finding.detail
        assert aside.exists() != check
    assert kept.from_json(path.read_text()) == kept.from_json(good)
    assert aside.read_bytes() == text.encode("utf-8", "surrogateescape")
    assert aside.stat().st_mode & 0o777 == 0o600
    assert host.run(layout=LAYOUT, restore_at_boot=True).result.findings == []
    host.run(state="absent")
    assert [path for path in tree(host) if "gpufleet" in path] == []


def test_a_host_without_systemd_is_told_that_nothing_is_kept(host_with):
    host = host_with("H200-SXM5-141GB")
    host.systemd = False
    outcome = host.run(layout=LAYOUT, restore_at_boot=True, services=["nvidia-dcgm.service"], refresh_cdi=True)
    assert [f.id for f in outcome.result.findings] == ["mig.no-systemd"]
    assert host.slices() == PICTURE
    assert host.systemctl.ran == []


def test_the_same_sources_make_the_same_program():
    assert restore.zipapp(pynvml) == restore.zipapp(pynvml)


@pytest.mark.rows("MH-06")
def test_a_gpu_that_is_lost_keeps_no_other_from_its_layout_at_boot(host_with):
    host = host_with("H200-SXM5-141GB", "H200-SXM5-141GB")
    host.run(layout=[{"profiles": {"1g.18gb": 2}}], restore_at_boot=True)
    program, layout = (str(host.root) + path for path in (restore.PROGRAM, restore.LAYOUT))
    host.tool("reboot", str(host.state))
    host.set("gpu=1", "lost=1")
    command = [sys.executable, "-I", "-S", program, layout]
    done = subprocess.run(command, env=environment(host), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot be read" in done.stderr or "GPU_IS_LOST" in done.stderr
    host.set("gpu=1", "lost=0")
    assert host.slices() == "[1g][1g][" + 22 * "-" + "]"
