# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node: a host with containerd 2.4.2, the kubelet of the testbed's one binary and a bridge for its pods.

with Node(folder) as node:
    node.apply(pod("plain"))
    node.wait("pod/plain", "condition=Ready")
    subprocess.run(["ansible-playbook", "-i", node.hosts.inventory(), ...])
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from ansible_collections.gpufleet.nvidia.tests.testbed import programs
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import Cluster
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, HostError, Hosts, runtimes
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import bridge, prepare

SYSTEM = "debian13-runtimes"
CONFIG = "/etc/containerd/config.toml"
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
PAUSE = "registry.k8s.io/pause:3.10.2"
# As administrators write it: only what differs from the defaults, and why.
CONTAINERD = f"""\
# containerd on a node of the testbed
version = 3

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}" # loaded beforehand

[plugins."io.containerd.cri.v1.runtime"]
  # the node is a container itself, and may not lower its score
  restrict_oom_score_adj = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"] # Debian's
    conf_dir = "/etc/cni/net.d"
"""
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
# What a kubelet needs inside a container, on a machine with cgroups of version 1; no disk is full before the machine's.
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": False},
        "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
    },
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "enforceNodeAllocatable": [],
    "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
    "failCgroupV1": False,
    "failSwapOn": False,
    "featureGates": {"KubeletInUserNamespace": True},
    "imageGCHighThresholdPercent": 100,
    "localStorageCapacityIsolation": False,
    "resolvConf": "/etc/resolv.conf",
}
UNIT = f"""\
[Unit]
Description=kubelet
After=containerd.service

[Service]
ExecStartPre=/bin/mount --make-rshared /
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig={KUBECONFIG}
Restart=always
RestartSec=1
KillMode=process

[Install]
WantedBy=multi-user.target
"""
# The API server here has no authorizer of its own for nodes.
RIGHTS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "testbed-nodes"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
}


class Node:
    """A node, and the control plane and the host that it is made of: ``cluster``, ``host`` (one of ``hosts``).

    As a context manager it ends with its block, or with this process. A ``lasting`` one (the command line makes
    those) ends with ``down()``.
    """

    def __init__(
        self, folder: Path | str, name: str = "node-1", *, lasting: bool = False, report: programs.Report = programs.say
    ) -> None:
        self.folder = Path(folder).absolute()
        self.name = name
        self.report = report
        self.hosts = Hosts(self.folder, lasting=lasting, report=report)
        prepare(report)
        self.cluster = Cluster(self.folder / "cluster", bridge())
        self.cluster.tied = not lasting

    @property
    def host(self) -> Host:
        return self.hosts.hosts[self.name]

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start what does not run, and wait until the node is Ready."""
        for program in (*programs.CONTAINERD, "controlplane"):
            programs.ensure(program, self.report)
        if self.name not in self.hosts.hosts:
            self._start_host()
        self.cluster.up(report=self.report)  # after the host: podman's bridge comes with the first one
        self.apply(RIGHTS)
        self._start_kubelet()
        self.kubectl("wait", "--for=create", f"node/{self.name}", "--timeout=60s")
        self.wait(f"node/{self.name}", "condition=Ready")
        self.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")

    def down(self) -> None:
        """End the host and the control plane, with all that is on them."""
        self.hosts.stop()
        self.cluster.down()

    def find(self) -> Self:
        """Take over what an earlier process started in this folder."""
        self.hosts.find()
        return self

    def _start_host(self) -> None:
        host = self.hosts.start(self.name, SYSTEM)
        runtimes.install_containerd(host, self.report)
        host.put(CONFIG, CONTAINERD)
        host.put("/etc/cni/net.d/10-pods.conflist", json.dumps(NETWORK, indent=2) + "\n")
        runtimes.start(host, "containerd")
        runtimes.give_image(host, "kubernetes", name=PAUSE)
        runtimes.give_image(host, "kubernetes")
        host.put("/usr/bin/kubelet", programs.ensure("controlplane", self.report), mode=0o755)

    def _start_kubelet(self) -> None:
        own = self.folder / f"{self.name}.kubeconfig"
        self.cluster.write_kubeconfig(own, f"node-{self.name}", f"system:node:{self.name}", ("system:nodes",))
        self.host.put(KUBECONFIG, own, mode=0o600)
        self.host.put("/etc/kubernetes/ca.crt", self.cluster.pki / "ca.crt")
        self.host.put("/var/lib/kubelet/config.yaml", yaml.safe_dump(KUBELET))
        self.host.put("/etc/systemd/system/kubelet.service", UNIT)
        self.host.run(["systemctl", "daemon-reload"])
        runtimes.start(self.host, "kubelet")

    # --- The cluster, as its administrator ----------------------------------------------------------------------------

    def kubectl(self, *words: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [self.cluster.kubectl, "--kubeconfig", self.cluster.kubeconfig(), *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=300)
        if check and done.returncode:
            raise HostError(f"kubectl {' '.join(words)} failed: {done.stderr.strip()[-1500:]}")
        return done

    def apply(self, *objects: Mapping[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(listed))

    def get(self, what: str) -> dict[str, Any]:
        """An object: ``pod/plain``, ``node/node-1``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", what, "--output=json").stdout)
        return found

    def container(self, name: str) -> tuple[str, int, int]:
        """A pod's container: its id, how often it was started anew, and the process of its program on the host."""
        (told,) = self.get(f"pod/{name}")["status"]["containerStatuses"]
        id = told["containerID"].rpartition("/")[2]
        tasks = self.host.run(["ctr", "--namespace", "k8s.io", "tasks", "list"]).stdout
        (process,) = [line.split()[1] for line in tasks.splitlines() if line.startswith(id)]
        return id, told["restartCount"], int(process)

    def wait(self, what: str, state: str, seconds: int = 120) -> None:
        """Until ``condition=Ready``, ``jsonpath={.status.phase}=Succeeded``, ``delete``; tells the object's events if
        that does not come."""
        done = self.kubectl("wait", f"--for={state}", what, f"--timeout={seconds}s", check=False)
        if done.returncode:
            told = "\n".join(self.events(what.partition("/")[2])[-10:])
            raise HostError(f"{what}: not {state} within {seconds} s: {done.stderr.strip()}\n{told}")

    def events(self, name: str) -> list[str]:
        """``REASON: message`` of each event about the object of a name, oldest first."""
        words = ("get", "events", f"--field-selector=involvedObject.name={name}", "--sort-by=.lastTimestamp")
        found = json.loads(self.kubectl(*words, "--output=json").stdout)["items"]
        return [f"{event['reason']}: {event['message']}" for event in found]

    def wait_for_event(self, name: str, words: str, seconds: float = 60) -> str:
        """The first event about an object that has these words in it."""
        deadline = time.monotonic() + seconds
        while True:
            told = self.events(name)
            for line in told:
                if words in line:
                    return line
            if time.monotonic() > deadline:
                raise HostError(f"{name}: no event with {words!r} within {seconds:g} s; there are: {told}")
            time.sleep(0.5)


def pod(name: str, *, command: Sequence[str] = runtimes.STAY, runtime_class: str = "") -> dict[str, Any]:
    """A plain pod of busybox that stays until it is deleted, or that runs ``command`` once."""
    container = {"name": "main", "image": runtimes.BUSYBOX, "command": list(command), "imagePullPolicy": "Never"}
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if command != runtimes.STAY:
        spec["restartPolicy"] = "Never"
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
