# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test hosts are what they claim to be: systemd, SSH, files that survive a boot, and nothing left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, HostError, Hosts, gpus
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.__main__ import main
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.host import sweep
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import podman
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.snapshot import differences

pytestmark = pytest.mark.hosts


def is_there(id: str) -> bool:
    return podman("container", "exists", id, check=False).returncode == 0


def test_systemd_runs_every_unit(host: Host) -> None:
    assert host.run(["cat", "/proc/1/comm"]).stdout == "systemd\n"
    assert host.run(["systemctl", "is-system-running"]).stdout == "running\n"
    release = host.run(["cat", "/etc/os-release"]).stdout
    assert f'VERSION_ID="{host.name.removeprefix("debian")}"' in release


def test_an_administrator_logs_in_by_ssh_and_becomes_root(host: Host) -> None:
    assert host.ssh("id -un; hostname; sudo -n id -un").stdout.split() == ["admin", host.name, "root"]


def test_each_host_is_a_machine_of_its_own(hosts: Hosts) -> None:
    ids = [host.run(["cat", "/etc/machine-id"]).stdout for host in hosts.hosts.values()]
    assert len(ids) > 1
    assert len(set(ids)) == len(ids)


def test_udev_leaves_the_address_of_the_network_card(tmp_path: Path) -> None:
    """Else packets that are on their way, to a login for one, go to an address that is no more."""
    with Hosts(tmp_path) as hosts:
        host = hosts.start("a", "debian12-drivers")
        given = podman("inspect", "--format", "{{.NetworkSettings.Networks.podman.MacAddress}}", host.id).stdout
        assert host.run(["systemctl", "is-active", "systemd-udevd"]).stdout == "active\n"
        assert host.run(["cat", "/sys/class/net/eth0/address"]).stdout.encode() == given


def test_a_stranger_is_not_let_in(host: Host, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    options = [word.replace(str(host.folder / "key"), str(tmp_path / "key")) for word in host.ssh_options()]
    command = ["ssh", *options, "-o", "BatchMode=yes", "-p", str(host.port), "admin@127.0.0.1", "true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_ansible_reaches_all_hosts_at_once(hosts: Hosts) -> None:
    command = [Path(sys.executable).with_name("ansible"), "-i", hosts.inventory(), "gpu_hosts", "-o"]
    facts = [
        *command,
        "-m",
        "ansible.builtin.setup",
        "-a",
        "gather_subset=!all,!min,service_mgr filter=ansible_service*",
    ]
    done = subprocess.run(facts, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"ansible_service_mgr": "systemd"') == len(hosts.hosts) == 2


def test_files_go_in_and_out(host: Host) -> None:
    host.put("/etc/gpus/there/a", b"\0binary\xff", mode=0o640, owner=(1000, 1000))
    assert host.get("/etc/gpus/there/a") == b"\0binary\xff"
    assert host.run(["stat", "-c", "%a %u %g", "/etc/gpus/there/a"]).stdout == "640 1000 1000\n"
    with pytest.raises(HostError, match=r"no such file|could not find"):
        host.get("/etc/gpus/none")
    host.run("rm -r /etc/gpus")


def test_a_failure_names_host_command_and_words(host: Host) -> None:
    with pytest.raises(HostError, match=rf"{host.name}: `ls /none` failed with status 2: .*cannot access"):
        host.run(["ls", "/none"])
    assert host.run("exit 3", check=False).returncode == 3


@pytest.mark.parametrize("how", ["restart", "power_cut"])
def test_a_boot_keeps_files_and_enabled_units_and_nothing_else(host: Host, how: str) -> None:
    host.put("/etc/systemd/system/mark.service", "[Service]\nType=oneshot\nExecStart=/bin/touch /run/by-unit\n"
             "[Install]\nWantedBy=multi-user.target\n")  # fmt: skip
    host.run(["systemctl", "enable", "mark.service"])
    host.put("/var/lib/kept", "kept")
    host.put("/run/lost", "lost")
    before, port = host.boot_id(), host.port
    getattr(host, how)()
    assert host.boot_id() != before
    assert host.get("/var/lib/kept") == b"kept"
    assert not host.exists("/run/lost")
    assert host.exists("/run/by-unit")
    assert (host.ssh("hostname").stdout.strip(), host.port) == (host.name, port)
    host.run("systemctl disable --quiet mark.service; rm /etc/systemd/system/mark.service /var/lib/kept")


def test_a_snapshot_sees_every_kind_of_change_and_no_other(host: Host) -> None:
    before = host.snapshot()
    host.ssh("sudo true")
    assert differences(before, host.snapshot()) == []
    host.run("touch /etc/new; chmod 600 /etc/fstab; mv /etc/issue.net /etc/moved; echo >> /etc/issue; chown 5 /srv")
    found = differences(before, host.snapshot())
    assert [line.split(":")[0] + line.split(":")[1] for line in found] == [
        "new /etc/moved",
        "new /etc/new",
        "gone /etc/issue.net",
        "changed /etc/fstab",
        "changed /etc/issue",
        "changed /srv",
    ]
    host.run("rm /etc/new; chmod 644 /etc/fstab; mv /etc/moved /etc/issue.net; chown 0 /srv")


def test_hosts_end_with_their_block(tmp_path: Path) -> None:
    with Hosts(tmp_path / "hosts") as hosts:
        host = hosts.start("short")
        assert is_there(host.id)
    assert not is_there(host.id)


def test_hosts_of_a_killed_run_are_ended_by_the_next_and_others_stay(hosts: Hosts, tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Hosts\n"
        "print(Hosts(sys.argv[1]).start('orphan').id, flush=True)\n"
        "time.sleep(600)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, tmp_path / "other"], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    id = other.stdout.readline().strip()
    sweep()
    assert is_there(id)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.stdout.close()
    sweep()
    assert not is_there(id)
    assert all(is_there(host.id) for host in hosts.hosts.values())


def test_the_command_line_starts_marks_compares_and_ends(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = ["--folder", str(tmp_path / "cli")]
    assert main(["up", *folder, "debian13-a"]) == 0
    id = json.loads(podman("ps", "--filter", f"label=gpufleet.folder={tmp_path / 'cli'}", "--format", "json").stdout)[
        0
    ]["Id"]
    assert main(["up", *folder, "debian13-a"]) == 0
    assert f"debian13-a\t{id[:12]}" in capfd.readouterr().out
    assert main(["mark", *folder]) == 0
    assert main(["compare", *folder]) == 0
    podman("exec", id, "touch", "/etc/new")
    assert main(["compare", *folder]) == 1
    assert "debian13-a: new: /etc/new" in capfd.readouterr().out
    assert main(["restart", *folder, "none"]) == 1
    assert "There is no host 'none'" in capfd.readouterr().err
    assert main(["down", *folder]) == 0
    assert not is_there(id)
    assert not (tmp_path / "cli").exists()


def test_a_host_with_gpus_shows_them_to_users_root_and_units(hosts: Hosts) -> None:
    host = hosts.hosts["debian13"]
    gpus.install(host, "--product", "A100-SXM4-80GB", "--count", "2")
    count = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    assert host.ssh(f'python3 -c "{count}"').stdout == "2\n"
    assert host.ssh(f'sudo python3 -c "{count}"').stdout == "2\n"
    unit = host.run(["systemd-run", "--quiet", "--wait", "--pipe", "python3", "-c", count])
    assert unit.stdout == "2\n"
    assert [call["function"] for call in gpus.calls(host)].count("nvmlDeviceGetCount_v2") == 3
    host.restart()
    assert host.ssh(f'python3 -c "{count}"').stdout == "2\n"
    assert len(gpus.show(host)["gpus"]) == 2
