# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What operands are made from, beside the policy: facts of the cluster and its GPU nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .._nodes._drivers import Driver
from .._nodes._runtimes import PLAIN, Runtime
from .._policy._model import Policy

Object = Dict[str, Any]


@dataclass(frozen=True)
class NodeFacts:
    """A GPU node as its labels and nodeInfo tell it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime: str = "containerd"  # containerd, docker, crio
    kernel: str = ""  # feature.node.kubernetes.io/kernel-version.full
    setup: Optional[Runtime] = None  # the runtime with its files; None: where ``runtime`` has them by default

    driver: Optional[Driver] = None  # of the node's group; None: the policy's

    @property
    def runtime_setup(self) -> Runtime:
        return self.setup or PLAIN.get(self.runtime) or PLAIN["containerd"]

    @property
    def os_id(self) -> str:
        return self.labels.get("feature.node.kubernetes.io/system-os_release.ID", "")

    @property
    def os_version(self) -> str:
        return self.labels.get("feature.node.kubernetes.io/system-os_release.VERSION_ID", "")

    @property
    def os_tag(self) -> str:
        """Suffix of driver images: ``ubuntu24.04``; major version only for ol, rocky, rhel (IMG-02). "" if unknown."""
        if not self.os_id or not self.os_version:
            return ""
        major_only = self.os_id in ("ol", "rocky", "rhel")
        return self.os_id + (self.os_version.split(".")[0] if major_only else self.os_version)


@dataclass(frozen=True)
class ClusterFacts:
    """Facts of the cluster that objects depend on. ``nodes`` are GPU nodes only.

    ``driver_os``: OS tag that the DaemonSet ``nvidia-driver-daemonset`` serves in the cluster now ("" when there is
    none), so that a name never moves to another operating system. ``driver_daemonsets``: all driver DaemonSets of ours
    that exist, by name, with the OS tag that each serves.
    ``config_keys``: keys of each ConfigMap and Secret of our namespace that the policy names (repoConfig, certConfig,
    ...), by ``ConfigMap/name`` or ``Secret/name``; absent when it does not exist. ``config_hashes``: by the same keys,
    what ``_build.content_hash`` says of their content, so that a change rolls the pods that read them.
    """

    namespace: str = "gpu-operator"
    nodes: Tuple[NodeFacts, ...] = ()
    runtime: str = "containerd"
    driver_os: str = ""
    config_keys: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    config_hashes: Mapping[str, str] = field(default_factory=dict)
    driver_daemonsets: Mapping[str, str] = field(default_factory=dict)
    service_monitor_crd: bool = False
    prometheus_rule_crd: bool = False
    validated: bool = True  # the stack's validator runs: pods wait for its proofs of driver and toolkit
    gated: bool = False  # nodes are kept free until the stack is proved there: operands tolerate that taint
    hidden: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)  # GPUs to hide, by node (_nodes._hidden)
    nfd_running: bool = False  # an NFD that we did not deploy runs already: use it


@dataclass(frozen=True)
class Operand:
    """One state of the stack, in the order of the table ``OPERANDS``.

    ``name`` is the operator's name of the state (``state-driver``); ``title`` what a person calls it (``driver``);
    ``enabled`` says whether the policy wants it; ``build`` makes its objects.

    """

    name: str
    title: str
    enabled: Callable[[Policy], bool]
    build: Callable[[Policy, ClusterFacts], List[Object]]
    deploy_label: str = ""  # node label key that selects its pods: nvidia.com/gpu.deploy.<x>
