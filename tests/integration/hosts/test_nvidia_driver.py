# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver on a Debian host with two H100 in sysfs: real apt and dpkg, and a real build by dkms for Debian's kernel.

The kernel is the one whose headers the host has, given as an option: the one that runs is the machine's. So nothing is
loaded here, and every change waits for the next boot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.on_hosts import LIBRARY, MODULE, library
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers import debs, parts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import repository

pytestmark = pytest.mark.hosts

SHARED = "/srv/repositories"
OLD, NEW, NEXT, BROKEN = "580.95.05", "580.178.04", "595.91.07", "595.71.05"
OPEN, PROPRIETARY = "nvidia-kernel-open-dkms", "nvidia-kernel-dkms"
OPTIONS: dict[str, Any] = {
    "state": "present", "branch": None, "version": None, "flavour": "auto", "source": "nvidia", "repository": None,
    "use": "compute", "companions": ["auto"], "kernel": None, "apply": "next_boot", "accept": [], "parameters": None,
    "hold": True, "matrix": None, "mok_password": None, "root": "/", "progress_file": None,
}  # fmt: skip

# One run, as the module has it; prints its result, and every command and write.
PROGRAM = f"""
import json, sys
sys.path.insert(0, "{LIBRARY}")
from {MODULE}.plugins.module_utils._driver._run import Tools, nvidia_driver
from {MODULE}.plugins.module_utils._host._commands import Runner
from {MODULE}.plugins.module_utils._host._files import Files
from {MODULE}.plugins.module_utils._plan import Failure

asked = json.loads(sys.stdin.read())
ran = []
def watch(moment, what):
    if moment == "before":
        ran.append(what)
tools = Tools(runner=Runner(watch), files=lambda root: Files(root, watch))
try:
    told = dict(nvidia_driver(asked["options"], asked["check"], lambda line: None, tools).as_dict(), msg="")
except Failure as failure:
    told = failure.as_dict()
print(json.dumps(dict(told, ran=ran)))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("repositories")
    key = repository.Key(folder)
    (folder / "key.asc").write_text(key.text)
    packages = debs.nvidia_debian((OLD, NEW, BROKEN, NEXT), broken=[BROKEN])
    repository.apt(packages, folder / "all/debian12/x86_64", key)
    repository.apt(parts.leave_out(packages, "libcuda1", version=NEXT), folder / "lacking/debian12/x86_64", key)
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        host = hosts.start("gpu", "debian12-drivers", "--volume", f"{folder}:{SHARED}:ro")
        library(host, "_host", "_host/_packages", "_host_state", "_driver", "_matrix", "_gpu")
        host.put("/tmp/driver.py", PROGRAM)
        gpus.install_pci(host, "2330", "2330")
        host.run("mkdir -p /var/lib/dkms")
        yield host
    key.close()


@pytest.fixture
def host(made: Host) -> Iterator[Host]:
    """What a test leaves is taken off."""
    yield made
    made.run("apt-mark showhold | xargs -r apt-mark unhold")
    made.run("dpkg-query -W -f '${Package}\\n' '*nvidia*' '*cuda*' 2>/dev/null | xargs -r dpkg --purge")
    made.run("rm -rf /var/lib/gpufleet /etc/apt/sources.list.d/* /etc/apt/preferences.d/* /var/lib/dkms/*")
    made.run("rm -f /etc/modprobe.d/*nvidia* /etc/modprobe.d/*nouveau* /etc/modules-load.d/*nvidia*")


def traces(host: Host) -> str:
    """Every file where a run may write, with its content. A whole host with kernel headers takes long to read."""
    places = "etc boot usr/share/keyrings usr/lib/modprobe.d lib/systemd lib/modules var/lib/dkms var/lib/gpufleet"
    files = f"cd / && find {places} ! -type d -print0 2>/dev/null | sort -z | xargs -0 sha256sum 2>/dev/null"
    return host.run(f"{files}; ls /usr/src; dpkg-query -W", check=False).stdout


def kernel(host: Host) -> str:
    (name,) = host.run(["ls", "/lib/modules"]).stdout.split()
    return name


def run(host: Host, *, check: bool = False, mirror: str = "all", **options: Any) -> dict[str, Any]:
    place = {"url": f"file://{SHARED}/{mirror}", "key_file": f"{SHARED}/key.asc"}
    asked = {"options": {**OPTIONS, "kernel": kernel(host), "repository": place, **options}, "check": check}
    done = host.run(["python3", "-B", "/tmp/driver.py"], stdin=json.dumps(asked).encode(), timeout=500)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def good(told: dict[str, Any]) -> dict[str, Any]:
    assert told["msg"] == ""
    assert [one for one in told["verified"] if not one["ok"]] == []
    return told


def there(host: Host) -> dict[str, str]:
    """By dpkg's own words: the driver's packages -> NVIDIA's version."""
    form = r"${Package} ${Version} ${Status}\n"
    said = host.run(["dpkg-query", "-W", "-f", form, "*nvidia*", "libcuda1"], check=False).stdout
    lines = [line.split() for line in said.splitlines() if line.endswith(" installed")]
    return {name: version.rpartition("-")[0] for name, version, *_more in lines}


def built(host: Host) -> tuple[str, str]:
    """Version and license of the module file, by modinfo."""
    words = ["modinfo", "-k", kernel(host), "-F"]
    return tuple(host.run([*words, field, "nvidia"]).stdout.strip() for field in ("version", "license"))  # type: ignore[return-value]


def held(host: Host) -> set[str]:
    return set(host.run(["apt-mark", "showhold"]).stdout.split())


@pytest.mark.rows("H010", "H012", "H014", "H017", "H033", "H035", "H060", "P030", "S07")
def test_a_driver_comes_is_built_and_held_moves_changes_flavour_and_goes(host: Host) -> None:
    before = traces(host)
    planned = good(run(host, version=OLD, check=True))
    assert planned["changed"]
    assert f"package-{OPEN}" in [one["id"] for one in planned["plan"]]
    assert traces(host) == before

    good(run(host, version=OLD))
    assert set(there(host).values()) == {OLD}
    assert OPEN in there(host)
    assert built(host) == (OLD, parts.OPEN)
    assert {OPEN, "nvidia-driver-cuda"} <= held(host)
    host.run("apt-get -q -y dist-upgrade")
    assert set(there(host).values()) == {OLD}

    again = good(run(host, version=OLD))
    assert (again["changed"], again["plan"]) == (False, [])
    assert good(run(host, branch=580))["plan"] == []  # no version asked for: what is there stays
    assert not [one for one in again["ran"] if "install" in one or one.startswith(("write", "append"))]

    good(run(host, version=NEXT))
    assert {one for name, one in there(host).items() if "pinning" not in name} == {NEXT}
    assert built(host) == (NEXT, parts.OPEN)

    good(run(host, version=OLD, flavour="proprietary"))
    assert set(there(host).values()) == {OLD}
    assert (PROPRIETARY in there(host), OPEN in there(host)) == (True, False)
    assert built(host) == (OLD, parts.PROPRIETARY)
    assert OLD in host.run(["dkms", "status"]).stdout
    assert NEXT not in host.run(["dkms", "status"]).stdout

    good(run(host, state="absent"))
    assert there(host) == {}
    assert held(host) == set()
    assert host.run(["dkms", "status"]).stdout == ""
    assert not host.exists("/var/lib/gpufleet")
    assert not host.exists("/etc/apt/sources.list.d/cuda-debian12-x86_64.list")


@pytest.mark.rows("H036", "P045")
def test_a_mirror_that_lacks_one_package_is_refused_before_the_old_driver_is_touched(host: Host) -> None:
    good(run(host, version=OLD))
    before, kept = there(host), held(host)
    told = run(host, version=NEXT, mirror="lacking")
    assert "libcuda1" in told["msg"]
    assert not [one for one in told.get("done", []) if one.startswith("package-")]
    assert (there(host), held(host)) == (before, kept)
    assert built(host) == (OLD, parts.OPEN)


@pytest.mark.rows("H014")
def test_a_package_that_says_success_and_built_nothing_is_seen_and_the_old_driver_comes_back(host: Host) -> None:
    good(run(host, version=NEW))
    told = run(host, version=BROKEN)
    assert "does not go with this kernel" in told["msg"] or "make.log" in told["msg"]
    assert {one for name, one in there(host).items() if "pinning" not in name} == {NEW}
    assert built(host) == (NEW, parts.OPEN)
    assert OPEN in held(host)
    good(run(host, version=NEXT))
    assert built(host) == (NEXT, parts.OPEN)


@pytest.mark.rows("H034", "P026")
def test_unattended_upgrades_leave_the_driver_where_it_is(host: Host) -> None:
    good(run(host, version=OLD))
    origins = 'Unattended-Upgrade::Origins-Pattern { "origin=testbed"; };\n'
    host.put("/etc/apt/apt.conf.d/52testbed", origins)
    try:
        said = host.run("unattended-upgrade --debug --verbose 2>&1", timeout=400).stdout
        assert set(there(host).values()) == {OLD}
        host.run("apt-mark showhold | xargs apt-mark unhold")
        host.run("unattended-upgrade --debug --verbose 2>&1", timeout=400)
        assert set(there(host).values()) != {OLD}, said  # without holds they would have moved it
    finally:
        host.run("rm /etc/apt/apt.conf.d/52testbed")
