# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container runtime a node has and where its files are: by the node's own marks, or by its group (S53, L30, L31).

Distributions of Kubernetes that bring a containerd of their own keep its files elsewhere. They are known by the suffix
of the kubelet's version (``v1.36.3+k3s1``), MicroK8s by its label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Mapping, Tuple

# What a node's toolkit is set up for, where that differs from the rest of the cluster.
RUNTIME_LABEL = "gpufleet.io/runtime"
KINDS = ("containerd", "crio", "docker")


@dataclass(frozen=True)
class Runtime:
    """``name`` is what the label says; "" for files means: where the runtime has them by default."""

    name: str = "containerd"
    kind: str = "containerd"
    config: str = ""
    socket: str = ""


_K3S_SOCKET = "/run/k3s/containerd/containerd.sock"
DISTRIBUTIONS: Mapping[str, Runtime] = {
    "k3s": Runtime("k3s", "containerd", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml.tmpl", _K3S_SOCKET),
    "rke2": Runtime("rke2", "containerd", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl", _K3S_SOCKET),
    "microk8s": Runtime(
        "microk8s",
        "containerd",
        "/var/snap/microk8s/current/args/containerd-template.toml",
        "/var/snap/microk8s/common/run/containerd.sock",
    ),
    "k0s": Runtime("k0s", "containerd", "/etc/k0s/containerd.d/nvidia.toml", "/run/k0s/containerd.sock"),
}
PLAIN: Mapping[str, Runtime] = {kind: Runtime(kind, kind) for kind in KINDS}


def detect(runtime_version: str, kubelet_version: str, labels: Mapping[str, str]) -> Runtime:
    """The runtime of a node by ``status.nodeInfo`` and its labels."""
    kind = runtime_version.split(":", 1)[0]
    kind = {"cri-o": "crio"}.get(kind, kind)
    if kind not in KINDS:
        kind = "containerd"
    found = re.search(r"\+(k3s|rke2|k0s)", kubelet_version)
    name = found.group(1) if found else ("microk8s" if labels.get("microk8s.io/cluster") == "true" else "")
    return DISTRIBUTIONS[name] if name and kind == "containerd" else PLAIN[kind]


def split(runtimes: Iterable[Runtime]) -> Tuple[Runtime, List[Runtime]]:
    """The runtime that needs no label, and the others, by name.

    The first is chosen by its kind and not by numbers, so that it does not change when nodes come and go.
    """
    found = sorted(set(runtimes), key=lambda one: (KINDS.index(one.kind), bool(one.config or one.socket), one.name))
    return (found[0], sorted(found[1:], key=lambda one: one.name)) if found else (Runtime(), [])
