# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that the checks of a cluster look at, as plain data that a reader collects and a test can write down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._kube._resources import Object
from .._kube._rights import Right
from .._nodes._labels import has_gpu
from .._operands._types import ClusterFacts
from .._plan import Finding
from .._policy._model import Policy


@dataclass(frozen=True)
class Workload:
    """A pod, or what makes pods, that is not done. ``runs``: pods of it have started."""

    kind: str
    namespace: str
    name: str
    spec: Mapping[str, Any]  # of the pod
    runs: bool = False

    @property
    def id(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass
class World:
    """A cluster and the policy that it is to get. ``wanted``: the objects that a run would apply."""

    policy: Policy
    facts: ClusterFacts
    kubernetes: str = ""
    nodes: List[Object] = field(default_factory=list)
    wanted: List[Object] = field(default_factory=list)
    live_namespace: Optional[Object] = None
    denied: Sequence[Right] = ()
    unread: Mapping[str, str] = field(default_factory=dict)  # kind -> why it cannot be read
    admission: Mapping[str, str] = field(default_factory=dict)  # DaemonSet -> why its pod is refused, "" for admitted
    quotas: List[Object] = field(default_factory=list)
    deployments: List[Object] = field(default_factory=list)
    daemonsets: List[Object] = field(default_factory=list)
    workloads: List[Workload] = field(default_factory=list)
    refusals: List[Object] = field(default_factory=list)  # events FailedCreate
    webhooks: List[Object] = field(default_factory=list)
    services: Mapping[Tuple[str, str], Optional[int]] = field(default_factory=dict)  # ready endpoints; None: no service
    features: List[Object] = field(default_factory=list)  # NodeFeatures
    nfd_configs: Dict[str, Mapping[str, str]] = field(default_factory=dict)  # "ConfigMap ns/name" -> data
    of_run: List[Finding] = field(default_factory=list)  # what a run itself would refuse or warn of
    rivals: List[Finding] = field(default_factory=list)  # controllers of others, as a run finds them
    now: float = 0.0  # seconds since 1970

    @property
    def namespace(self) -> str:
        return self.facts.namespace

    @property
    def gpu_nodes(self) -> List[Object]:
        return [node for node in self.nodes if has_gpu(node["metadata"]["labels"])]

    @property
    def operand_daemonsets(self) -> List[Object]:
        return [made for made in self.wanted if made["kind"] == "DaemonSet"]


def some(names: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 4 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
