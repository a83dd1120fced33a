# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One test host and a group of them.

with Hosts(folder) as hosts:
    host = hosts.start("gpu-1", "debian12")
    host.run(["systemctl", "is-system-running"])
    subprocess.run(["ansible-playbook", "-i", hosts.inventory(), ...])
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import tarfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import images, snapshot
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import LIMITS, HostError, Report, podman, prepare
from ansible_collections.gpufleet.nvidia.tests.testbed.processes import _started
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import cache_dir, locked, say

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")
# As measured: crun does not boot systemd here; without a cgroup namespace no pod starts inside. podman's own --systemd
# gives each host the whole hierarchy `name=systemd` of a machine with cgroups of version 1, so that hosts remove each
# other's groups: what it does beside that is done by hand.
BOOT = (
    *("--runtime", "runc", "--systemd=false", "--privileged", "--cgroupns=private", "--env", "container=podman"),
    *("--tmpfs", "/run:rw,mode=0755", "--tmpfs", "/run/lock:rw,mode=1777", "--tmpfs", "/tmp:rw,mode=1777,exec"),
    *(*LIMITS, "--stop-signal", "SIGRTMIN+3"),
)
# Else udev gives the network card another address while it is in use already, and packets go to the old one.
_LINK = b"[Match]\nOriginalName=eth0\n\n[Link]\nMACAddressPolicy=none\n"
_KEEP_ADDRESS = {"/etc/systemd/network/10-eth0.link": (_LINK, 0o644)}
OWNER = "gpufleet.owner"  # pid and start of the process whose end ends the host; empty for none
FOLDER = "gpufleet.folder"  # the host ends with this folder


class Host:
    """A running host. ``id`` is the container's, ``port`` that of its SSH server on this machine's loopback address."""

    def __init__(self, name: str, id: str, folder: Path, port: int) -> None:
        self.name = name
        self.id = id
        self.folder = folder
        self.port = port

    # --- From outside: what verifies does not lean on what is verified ------------------------------------------------

    def run(
        self, argv: Sequence[str] | str, *, check: bool = True, stdin: bytes = b"", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as root, past SSH and Ansible; a text is run by a shell. ``check``: raise ``HostError``."""
        words = ["/bin/bash", "-c", argv] if isinstance(argv, str) else list(argv)
        done = podman("exec", "--interactive", self.id, *words, check=False, stdin=stdin, timeout=timeout)
        ended = subprocess.CompletedProcess(
            words, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and ended.returncode:
            said = (ended.stderr or ended.stdout).strip()[-1500:]
            raise HostError(f"{self.name}: `{shlex.join(words)}` failed with status {ended.returncode}: {said}")
        return ended

    def put(
        self, path: str, content: bytes | str | Path, *, mode: int = 0o644, owner: tuple[int, int] = (0, 0)
    ) -> None:
        """Write a file; ``content`` is its bytes, its text, or a file of this machine. Folders are made."""
        data = content.read_bytes() if isinstance(content, Path) else content
        _put(self.id, {path: (data.encode() if isinstance(data, str) else data, mode)}, owner)

    def get(self, path: str) -> bytes:
        """A file's content. Raises ``HostError`` where there is none."""
        done = podman("cp", f"{self.id}:{path}", "-")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            member = archive.next()
            file = archive.extractfile(member) if member else None
            if file is None:
                raise HostError(f"{self.name}: {path} is no file")
            return file.read()

    def exists(self, path: str) -> bool:
        return self.run(["test", "-e", path], check=False).returncode == 0

    def snapshot(self) -> dict[str, list[Any]]:
        """Every file, folder and link of the host that is meant to stay: path -> kind, mode, owner, content."""
        told: dict[str, list[Any]] = json.loads(self.run(["python3", "-"], stdin=snapshot.PROGRAM, timeout=240).stdout)
        return told

    # --- As users reach it --------------------------------------------------------------------------------------------

    def ssh(self, command: str, *, user: str = images.USER, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command by SSH."""
        done = subprocess.run(
            ["ssh", *self.ssh_options(), "-p", str(self.port), f"{user}@127.0.0.1", command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if check and done.returncode:
            raise HostError(f"{self.name}: by SSH, `{command}` failed: {done.stderr.strip()[-1500:]}")
        return done

    def ssh_options(self) -> list[str]:
        known = self.folder / "known_hosts"
        options = {
            "UserKnownHostsFile": known,
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 10,  # what is lost while the network comes up is sent again late
        }
        pairs = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["-F", "none", "-i", str(self.folder / "key"), *pairs]

    def variables(self) -> dict[str, Any]:
        """What Ansible's inventory has to say of it."""
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": images.USER,
            "ansible_become": True,
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={self.folder}/known_hosts "
            "-o StrictHostKeyChecking=yes -o IdentitiesOnly=yes",
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    # --- Its life -----------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Shut it down in order and boot it again; its files stay, its /run and /tmp do not."""
        podman("stop", "--time", "30", self.id)
        self._boot()

    def power_cut(self) -> None:
        """End everything on it at once, as when the power fails, and boot it again."""
        podman("kill", "--signal", "KILL", self.id)
        podman("wait", self.id)
        self._boot()

    def boot_id(self) -> str:
        """Another one after each boot."""
        return podman("inspect", "--format", "{{.State.StartedAt}}", self.id).stdout.decode().strip()

    def remove(self) -> None:
        """End it, with all that is on it."""
        podman("rm", "--force", "--time", "0", "--volumes", "--ignore", self.id)

    def _boot(self) -> None:
        podman("start", self.id)
        self.wait()

    def wait(self, seconds: float = 60) -> None:
        """Until systemd has started everything and SSH answers. Raises ``HostError`` with the units that failed."""
        deadline = time.monotonic() + seconds
        said = answer = ""
        while time.monotonic() < deadline:
            done = self.run(["systemctl", "is-system-running"], check=False)
            said = (done.stdout or done.stderr).strip()
            if said == "running":
                login = self.ssh("true", check=False)
                if login.returncode == 0:
                    return
                answer = f", ssh says {login.stderr.strip()!r}"
            if said == "degraded":
                failed = self.run(["systemctl", "--failed", "--no-legend", "--plain"]).stdout.strip()
                raise HostError(f"{self.name}: booted, but not all units run: {failed}")
            time.sleep(0.1)
        raise HostError(f"{self.name}: not up within {seconds:g} s; systemd says {said!r}{answer}")


class Hosts:
    """Hosts that are started and ended together. ``folder`` holds their SSH key, and the inventory.

    As a context manager the hosts end with it, or with this process if that is killed. ``lasting`` ones (the command
    line makes those) end with ``stop()``, or when their folder is gone.
    """

    def __init__(self, folder: Path | str, *, lasting: bool = False, report: Report = say) -> None:
        self.folder = Path(folder).absolute()
        self.report = report
        self.hosts: dict[str, Host] = {}
        self._owner = "" if lasting else f"{os.getpid()}:{_started(os.getpid())}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, system: str = "debian12", *options: str) -> Host:
        """Make a host and wait until it is up. ``options``: more of ``podman create``, volumes for example."""
        if not _NAME.match(name) or name in self.hosts:
            raise HostError(f"{name!r} is no name for a host, or is taken")
        image = images.ensure(system, self.report)
        sweep()
        key = self._key()
        server_key, server_public = self._server_key(name)
        volumes = [word for path in images.SYSTEMS[system].volumes for word in ("--volume", path)]
        labels = ("--label", f"{OWNER}={self._owner}", "--label", f"{FOLDER}={self.folder}", "--label", f"name={name}")
        id = podman(
            "create", *BOOT, *labels, "--hostname", name, "--publish", "127.0.0.1::22", *volumes, *options, image,
            "/sbin/init",
        ).stdout.decode().strip()  # fmt: skip
        try:
            allowed = (key.encode(), 0o600)
            _put(id, {"/etc/ssh/ssh_host_ed25519_key": (server_key.encode(), 0o600)})
            _put(id, {"/root/.ssh/authorized_keys": allowed})
            _put(id, {"/etc/machine-id": (f"{uuid.uuid4().hex}\n".encode(), 0o444)})  # else all have this machine's
            _put(id, _KEEP_ADDRESS)
            _put(id, {f"/home/{images.USER}/.ssh/authorized_keys": allowed}, (1000, 1000))
            podman("start", id)
            port = int(podman("port", id, "22/tcp").stdout.decode().rpartition(":")[2])
            host = Host(name, id, self.folder, port)
            with (self.folder / "known_hosts").open("a") as known:
                known.write(f"[127.0.0.1]:{host.port} {server_public}")
            (self.folder / f"{name}.port").write_text(str(host.port))
            host.wait()
        except BaseException:
            podman("rm", "--force", "--time", "0", "--volumes", id, check=False)
            raise
        self.hosts[name] = host
        self._write_inventory()
        return host

    def inventory(self) -> Path:
        """An inventory of Ansible with the hosts in the group ``gpu_hosts``."""
        return self.folder / "hosts.yml"

    def find(self) -> Self:
        """Take over the lasting hosts of this folder that an earlier process started."""
        for id, labels in _containers():
            if labels.get(FOLDER) == str(self.folder):
                # From our file: podman tells no port of a host that is just being restarted.
                port = int((self.folder / f"{labels['name']}.port").read_text())
                self.hosts[labels["name"]] = Host(labels["name"], id, self.folder, port)
        return self

    def stop(self) -> None:
        """End all hosts."""
        for host in self.hosts.values():
            host.remove()
        self.hosts.clear()

    def _write_inventory(self) -> None:
        group = {"hosts": {name: host.variables() for name, host in self.hosts.items()}}
        self.inventory().write_text(json.dumps({"gpu_hosts": group}, indent=2) + "\n")

    def _key(self) -> str:
        """The public half of the key that may log in, made for this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        private = self.folder / "key"
        if not private.exists():
            _keygen(private)
        return private.with_suffix(".pub").read_text()

    def _server_key(self, name: str) -> tuple[str, str]:
        """The host's own key, so that SSH knows whom it talks to."""
        private = self.folder / f"{name}.key"
        private.unlink(missing_ok=True)
        _keygen(private)
        kind, public, *_comment = private.with_suffix(".key.pub").read_text().split()
        return private.read_text(), f"{kind} {public}\n"


def sweep() -> None:
    """End hosts whose owner is gone: the process that a kill ended, or the folder that somebody removed."""
    with locked(cache_dir() / "hosts" / "sweep.lock", lambda: None):
        for id, labels in _containers():
            pid, _colon, began = labels.get(OWNER, "").partition(":")
            alive = _started(int(pid)) == began if pid else Path(labels.get(FOLDER, "")).is_dir()
            if not alive:
                podman("rm", "--force", "--time", "0", "--volumes", "--ignore", id)


def _containers() -> list[tuple[str, dict[str, str]]]:
    prepare(lambda _line: None)
    listed = podman("ps", "--all", "--filter", f"label={FOLDER}", "--format", "json").stdout
    return [(one["Id"], dict(one["Labels"] or {})) for one in json.loads(listed or b"[]") or []]


def _put(id: str, files: dict[str, tuple[bytes, int]], owner: tuple[int, int] = (0, 0)) -> None:
    """Files by path; the folder that holds one is made if need be, and belongs to the file's owner then."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, (content, mode) in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, member.mtime = len(content), mode, int(time.time())
            member.uid, member.gid = owner
            tar.addfile(member, io.BytesIO(content))
    podman("cp", "--archive=false", "-", f"{id}:/", stdin=archive.getvalue())


def _keygen(private: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", private], check=True)
