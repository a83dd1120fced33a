# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container runtimes on hosts of ``debian12-runtimes`` and ``debian13-runtimes``: images for them, a newer containerd.

Images are made from Debian's busybox-static, so that no registry is asked.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence

from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.host import Host

#: An image with every tool of busybox, whose containers stay until they are ended.
BUSYBOX = "localhost/busybox:1"
STAY = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done")
LOAD = {
    "containerd": ["ctr", "images", "import", "-"],
    "kubernetes": ["ctr", "--namespace", "k8s.io", "images", "import", "-"],
    "docker": ["docker", "load"],
    "podman": ["podman", "load"],
}
# As upstream's own, which its documentation puts to /usr/local/lib: it goes before the unit of a distribution.
UNIT = """\
[Unit]
Description=containerd container runtime
After=network.target local-fs.target dbus.service

[Service]
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""


def start(host: Host, *names: str) -> None:
    """Enable and start services, as their packages do where they are installed: ``containerd``, ``docker``."""
    host.run(["systemctl", "enable", "--quiet", "--now", *(f"{name}.service" for name in names)])


def give_image(host: Host, *runtimes: str, name: str = BUSYBOX, command: Sequence[str] = STAY) -> None:
    """An image of busybox for each of ``containerd``, ``kubernetes`` (containerd as kubelets use it), ``docker``,
    ``podman``; they have to run."""
    packed = archive(host, name, command)
    for runtime in runtimes:
        host.run(LOAD[runtime], stdin=packed)


def archive(host: Host, name: str, command: Sequence[str]) -> bytes:
    """An image in the form of `docker save`, which all runtimes read; its busybox is the host's."""
    path = host.run("readlink -e $(command -v busybox)").stdout.strip()
    layer = _tar({"bin/busybox": host.get(path)}, links=host.run([path, "--list"]).stdout.split())
    config = json.dumps({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }).encode()  # fmt: skip
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    return _tar({"manifest.json": manifest, "config.json": config, "layer.tar": layer})


def _tar(files: dict[str, bytes], links: Sequence[str] = ()) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for name in links:
            member = tarfile.TarInfo(f"bin/{name}")
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, "busybox", 0o777
            if name != "busybox":
                tar.addfile(member)
    return packed.getvalue()


def install_containerd(host: Host, report: programs.Report = programs.say) -> None:
    """containerd 2.4.2 where upstream's archive puts it, before Debian's in PATH and for systemd; not started."""
    for name in programs.CONTAINERD:
        host.put(f"/usr/local/bin/{name}", programs.ensure(name, report), mode=0o755)
    host.put("/usr/local/lib/systemd/system/containerd.service", UNIT)
    host.run(["systemctl", "daemon-reload"])
