# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own driver on a host with two H100 in sysfs: NVIDIA's real modules, built by dkms for Debian's real kernel.

The two versions are the newest that the archive had when the image was made: 535.261.03 and 535.309.01. The kernel is
the one whose headers the host has, given as an option. Nothing is loaded: the kernel that runs is the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.tests.helpers.ansible_runs import module
from ansible_collections.gpufleet.nvidia.tests.testbed.drivers.place import FIRST_BUILD
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.images import NONFREE
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = [pytest.mark.hosts, pytest.mark.long]

MODULES = ("nvidia", "nvidia-drm", "nvidia-modeset", "nvidia-peermem", "nvidia-uvm")
# Made from sources of their own, with their own numbers.
TOOLS = ("nvidia-modprobe", "nvidia-persistenced")
# The daemon's package leaves its user nvpd, as Debian's packages do; dpkg keeps the last state of its books.
LEFT = {f"/etc/{name}{old}" for name in ("group", "gshadow", "passwd", "shadow") for old in ("", "-")} | {
    "/var/lib/dpkg/diversions-old"
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hosts, Host]]:
    with Hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        host = hosts.start("gpu", "debian12-archive")
        gpus.install_pci(host, "2330", "2330")
        host.run(FIRST_BUILD, timeout=300)
        host.ssh("sudo true")
        yield hosts, host


def kernel(host: Host) -> str:
    (name,) = host.run(["ls", "/lib/modules"]).stdout.split()
    return name


def run(hosts: Hosts, host: Host, *more: str, **options: Any) -> dict[str, Any]:
    asked = {"source": "distribution", "kernel": kernel(host), "apply": "next_boot", **options}
    return module(hosts, "nvidia_driver", *more, timeout=900, **asked)


def good(answer: dict[str, Any]) -> dict[str, Any]:
    assert not answer["failed"], answer["msg"]
    assert [one for one in answer.get("verified", []) if not one["ok"]] == []
    return answer


def offered(host: Host) -> list[str]:
    """NVIDIA's versions that Debian's archive has, oldest first."""
    said = host.run("apt-cache madison nvidia-kernel-dkms | cut -d '|' -f 2 | sort -uV").stdout
    return [version.partition("-")[0] for version in said.split()][-2:]


def there(host: Host) -> dict[str, str]:
    """By dpkg's own words, with what is removed and has files left."""
    form = r"${Package}\t${Version}\t${db:Status-Abbrev}\n"
    said = host.run(["dpkg-query", "-W", "-f", form, "*nvidia*", "libcuda1", "*glx*"], check=False).stdout
    lines = [line.split("\t") for line in said.splitlines()]
    return {name: version.partition("-")[0] for name, version, status in lines if status[1] != "n"}


def held(host: Host) -> set[str]:
    return set(host.run(["apt-mark", "showhold"]).stdout.split())


def transactions(host: Host) -> str:
    return host.run("cat /var/log/dpkg.log /var/log/apt/history.log").stdout


def is_version(host: Host, version: str) -> None:
    """Packages, what the kernel would load, and holds, by the tools of the system."""
    packages = {name: one for name, one in there(host).items() if one.startswith("535.") and name not in TOOLS}
    assert set(packages.values()) == {version}
    assert {*NONFREE, "nvidia-alternative", "nvidia-kernel-support"} - set(packages) == {"nvidia-persistenced"}
    assert set(packages) <= held(host)
    for name in MODULES:
        real = name.replace("nvidia", "nvidia-current")  # by lines of `install`, as Debian has it
        asked = ["modprobe", "-S", kernel(host), "--show-depends"]
        assert f"modprobe -i {real} " in host.run([*asked, name]).stdout
        assert f"/updates/dkms/{real}.ko" in host.run([*asked, "-i", real]).stdout
    words = ["modinfo", "-k", kernel(host), "-F"]
    told = [host.run([*words, field, "nvidia-current"]).stdout.split() for field in ("version", "license", "vermagic")]
    assert [one[0] for one in told] == [version, "NVIDIA", kernel(host)]
    status = host.run(["dkms", "status"]).stdout.splitlines()
    assert [line.startswith(f"nvidia-current/{version}, {kernel(host)}, ") for line in status] == [True]


@pytest.mark.rows("H014", "H016", "H033", "H060", "P030", "S07")
def test_debians_own_driver_comes_is_built_and_held_moves_and_goes(running: tuple[Hosts, Host]) -> None:
    hosts, host = running
    old, new = offered(host)
    before = host.snapshot()
    planned = good(run(hosts, host, "--check", version=old))
    assert "package-nvidia-kernel-dkms" in [one["id"] for one in planned["plan"]]
    assert differences(before, host.snapshot()) == []
    refused = run(hosts, host, branch=580)
    assert "Debian 12 has one version of the driver, of branch 535 or 470, not 580" in refused["msg"]

    good(run(hosts, host, version=old))
    is_version(host, old)
    for words, moves in (([], False), (["--ignore-hold"], True)):
        said = host.run(["apt-get", "-s", "dist-upgrade", *words]).stdout
        assert (f"Inst nvidia-kernel-dkms [{old}" in said) is moves

    good(run(hosts, host, version=new))
    is_version(host, new)
    moved = transactions(host)
    for options in ({"version": new}, {"source": "auto"}):
        again = good(run(hosts, host, **options))
        assert (again["changed"], again["plan"]) == (False, [])
    assert transactions(host) == moved

    good(run(hosts, host, state="absent", version=new))
    assert there(host) == {}
    assert held(host) == set()
    assert host.run(["dkms", "status"]).stdout == ""
    changed = {line.split(": ")[1] for line in differences(before, host.snapshot())}
    assert changed <= LEFT
    assert not run(hosts, host, state="absent")["changed"]
