# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a GPU node has come, and the first thing that failed, by the node, its operand pods and DaemonSets (S01).

It reads a cluster that the GPU Operator runs as well as one of ours: operands are known by their pods' ``app`` label.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from .._kube._quantities import whole
from .._kube._wait import Trouble, diagnose, doing, pod_ready
from ._causes import FINAL, LONG, MOMENT, Cause, cause_of, one_sentence, waits_in
from ._hidden import unlike_hidden
from ._keys import DEPLOY, MIG_CONFIG, MIG_STATE, OPERANDS, PRESENT, has_features, has_gpu, has_mig_devices, mig_capable
from ._mig_guard import ANY_DEVICE
from ._models import is_mixed, models
from ._taints import describe, tolerates
from ._workload import for_machines, served_now

Json = Mapping[str, Any]

NO_FEATURES = "no NFD labels"
NO_GPU = "no GPU"
SEEN = "GPU seen"
LABELLED = "labelled"
OFF = "operands off"
READY = "ready"

SANDBOX, VGPU_DEVICES = "sandbox validator", "vGPU device manager"
_MANAGERS = ("VFIO manager", "vGPU manager", "confidential computing manager")  # what the sandbox validator checks

# The order in which a node comes up: (app of the pods, what a person calls it). The validator proves all before it.
OPERAND_APPS: Tuple[Tuple[str, str], ...] = (
    ("nvidia-driver-daemonset", "driver"),
    ("nvidia-container-toolkit-daemonset", "toolkit"),
    ("nvidia-device-plugin-mps-control-daemon", "MPS"),  # the plugin waits for it, where there is one
    ("nvidia-device-plugin-daemonset", "device plugin"),
    ("gpu-feature-discovery", "GPU feature discovery"),
    ("nvidia-mig-manager", "MIG manager"),
    ("nvidia-dcgm", "DCGM"),
    ("nvidia-dcgm-exporter", "DCGM exporter"),
    ("nvidia-node-status-exporter", "node status exporter"),
    ("gpufleet-cuda-toolkit", "CUDA toolkit"),
    # Of nodes whose GPUs are for virtual machines.
    ("nvidia-vfio-manager", "VFIO manager"),
    ("nvidia-vgpu-manager-daemonset", "vGPU manager"),
    ("nvidia-cc-manager", "confidential computing manager"),
    ("nvidia-vgpu-device-manager", VGPU_DEVICES),
    ("nvidia-sandbox-validator", SANDBOX),
    ("nvidia-sandbox-device-plugin-daemonset", "sandbox device plugin"),
    ("nvidia-kata-sandbox-device-plugin-daemonset", "Kata device plugin"),
    ("nvidia-operator-validator", "validator"),
)
_TITLES = dict(OPERAND_APPS)
ALLOCATABLE = "allocatable"
MIG = "MIG configuration"
# Taints that Kubernetes puts on nodes and takes away itself; DaemonSets get tolerations for them.
_OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")
# Pods that the validator makes on a node and waits for: what is wrong with them is what is wrong there.
_WORKLOAD_APPS = ("nvidia-cuda-validator", "nvidia-device-plugin-validator")
_DRIVER_COMPONENT = "nvidia-driver"  # of pods that an NVIDIADriver makes, whose app label differs with each


@dataclass(frozen=True)
class Stage:
    """``reached``: the last thing that is in order. ``stuck``: what comes next and is not ("" when ready), and why.

    ``failed`` is true when that is broken, and false when it only takes its time. ``remedy``: what a person does about
    it. ``patience``: how long a failure may last until it counts (``_causes``), from ``since`` on where that is told.
    """

    reached: str
    ready: bool = False
    stuck: str = ""
    trouble: str = ""
    failed: bool = False
    missing: Tuple[str, ...] = field(default=())
    remedy: str = ""
    patience: str = LONG
    since: str = ""

    @property
    def sentence(self) -> str:
        """Layer, cause and what to do next; "" when there is nothing to say."""
        if self.failed:
            return one_sentence(self.stuck, self.trouble, self.remedy)
        return f"{self.stuck}: {self.trouble}" if self.trouble else ""


def stage(
    node: Json,
    pods: Iterable[Json] = (),
    daemonsets: Iterable[Json] = (),
    events: Sequence[Json] = (),
    layers: Optional[Collection[str]] = None,
) -> Stage:
    """The stage of a GPU node.

    ``pods``: of the operands' namespace (those of other nodes are ignored). ``daemonsets``: the operands'; those that
    want the node must have a ready pod on it. ``events``: of the namespace, for what is told nowhere else. ``layers``:
    titles of the operands that are looked at, where not all are.
    """
    labels = node["metadata"].get("labels") or {}
    early = _before_operands(node, labels)
    if early is not None:
        return early
    mine = _by_operand(node["metadata"]["name"], pods)
    wanted = _wanted(node, labels, daemonsets, mine)
    reached = LABELLED
    waiting: Optional[Stage] = None
    for title in (t for _app, t in OPERAND_APPS if t in wanted and (layers is None or t in layers)):
        stuck = _operand_trouble(node, title, mine, wanted, events)
        if stuck is not None:
            missing = tuple(t for t in wanted if not any(pod_ready(p) for p in mine.get(t, [])))
            at = _stuck(reached, title, stuck, missing)
            if title != VGPU_DEVICES or at.failed or SANDBOX not in wanted:
                return at if waiting is None or at.failed else waiting
            waiting = at  # it waits for the sandbox validator's word, which waits for it afterwards
        elif waiting is None:
            reached = title
    return waiting or _after_operands(node, labels, reached)


def _stuck(reached: str, title: str, stuck: Union[Cause, str], missing: Tuple[str, ...] = ()) -> Stage:
    """A stage that ends at an operand: broken (a cause), or slow (what it does)."""
    if isinstance(stuck, str):
        return Stage(reached, False, title, stuck, False, missing)
    return Stage(reached, False, title, stuck.text, True, missing, stuck.remedy, stuck.patience)


def pod_stage(title: str, pod: Json, events: Sequence[Json] = ()) -> Stage:
    """The stage of a node by one pod that is not ready, of a workload that is no operand (NFD)."""
    found = diagnose(_no_workload([pod]), [pod], events)
    return _stuck("", title, doing(pod) if found is None else cause_of(title, found, _namespace(pod)))


def down(node: Json) -> Stage:
    """The stage of a node that is not ready."""
    conditions: List[Json] = [c for c in (node.get("status") or {}).get("conditions") or [] if c.get("type") == "Ready"]
    condition = conditions[0] if conditions else {}
    cause = cause_of("node", Trouble("NodeNotReady", "", raw=str(condition.get("message") or "")))
    reached = SEEN if has_gpu(node["metadata"].get("labels") or {}) else NO_FEATURES
    at = _stuck(reached, "node", cause)
    return replace(at, since=str(condition.get("lastTransitionTime") or ""))


def _before_operands(node: Json, labels: Mapping[str, str]) -> Optional[Stage]:
    if not node_ready(node):
        return down(node)
    if not is_gpu_node(labels):
        if has_features(labels):
            return Stage(NO_GPU)
        return Stage(NO_FEATURES, False, "NFD", "Node Feature Discovery has not labelled the node")
    if labels.get(OPERANDS) == "false":
        return Stage(OFF, False, "operands", f"the label {OPERANDS}=false keeps all operands away")
    if not any(key.startswith(DEPLOY) for key in labels):
        return Stage(SEEN, False, "labels", "the node has no labels that ask for operands")
    return None


def node_ready(node: Json) -> bool:
    """False when its kubelet says NotReady, or nothing any more."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return all(c.get("status") == "True" for c in conditions if c.get("type") == "Ready")


def _by_operand(name: str, pods: Iterable[Json]) -> Dict[str, List[Json]]:
    found: Dict[str, List[Json]] = {}
    for pod in pods:
        title = title_of((pod.get("metadata") or {}).get("labels") or {})
        if title and (pod.get("spec") or {}).get("nodeName") == name:
            found.setdefault(title, []).append(pod)
    return found


def title_of(labels: Mapping[str, str]) -> str:
    """What a person calls the operand whose pods have these labels; "" when it is none."""
    if labels.get("app.kubernetes.io/component") == _DRIVER_COMPONENT:
        return _TITLES["nvidia-driver-daemonset"]
    app = labels.get("app", "")
    return app if app in _WORKLOAD_APPS else _TITLES.get(app, "")


def _wanted(
    node: Json, labels: Mapping[str, str], daemonsets: Iterable[Json], mine: Mapping[str, List[Json]]
) -> Dict[str, List[Json]]:
    """Operands that are to run on the node, with their DaemonSets; an operand whose pod is there is one, too."""
    found: Dict[str, List[Json]] = {title: [] for title in mine if title in _TITLES.values()}
    for made in daemonsets:
        template = made["spec"]["template"]
        title = title_of((template.get("metadata") or {}).get("labels") or {})
        selector = template["spec"].get("nodeSelector") or {}
        if title and all(_selects(labels, key, value) for key, value in selector.items()):
            found.setdefault(title, []).append(made)
    return found


def _selects(labels: Mapping[str, str], key: str, value: str) -> bool:
    # An operand that is paused belongs to the node all the same; a driver that was there before does not need one.
    return labels.get(key) == value or (key.startswith(DEPLOY) and "paused-for" in labels.get(key, ""))


def _operand_trouble(
    node: Json, title: str, mine: Mapping[str, List[Json]], wanted: Mapping[str, List[Json]], events: Sequence[Json]
) -> Optional[Union[Cause, str]]:
    """None when the operand is in order on the node; else the cause of a failure, or what it is busy with."""
    pods, daemonsets = mine.get(title, []), wanted[title]
    if any(pod_ready(pod) for pod in pods):
        return _offers_nothing(node) if title.endswith("device plugin") else None
    workload = daemonsets[0] if daemonsets else _no_workload(pods)
    found = diagnose(workload, pods, events)
    if title == "validator":
        found = _of_workloads(mine, events) or found
    if title == SANDBOX and found is not None and _before_its_managers(pods, mine):
        return "its check failed before the manager that it looks for was ready, and is tried again by the kubelet"
    if found is not None:
        return cause_of(title, found, _namespace(workload))
    if pods:
        slow = _without_driver(wanted, pods) or (_in_a_check(pods) if title == SANDBOX else None)
        return slow or f"pod {pods[0]['metadata']['name']}: {doing(pods[0])}"
    return _kept_away(node, workload) or _paused(node) or "its pod is not there yet"


def _before_its_managers(pods: Sequence[Json], mine: Mapping[str, List[Json]]) -> bool:
    """Whether the last check that failed ended before a manager on the node was ready: it says nothing of it yet.

    The kubelet tries a container again after up to five minutes, and unloading a driver takes longer than some tries.
    """
    ended = max((end for pod in pods for end in _ends(pod)), default="")
    ready = (_ready_since(pod) for title in _MANAGERS for pod in mine.get(title, []) if pod_ready(pod))
    return bool(ended) and any(since >= ended for since in ready)


def _ends(pod: Json) -> List[str]:
    """When containers of a pod ended with an error."""
    found = []
    for status in (pod.get("status") or {}).get("initContainerStatuses") or []:
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            ended = state.get("terminated") or {}
            found += [str(ended["finishedAt"])] if ended.get("exitCode") and ended.get("finishedAt") else []
    return found


def _ready_since(pod: Json) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((str(c.get("lastTransitionTime") or "") for c in conditions if c.get("type") == "Ready"), "")


def _of_workloads(mine: Mapping[str, List[Json]], events: Sequence[Json]) -> Optional[Trouble]:
    """What is wrong with the pods that the validator made."""
    for app in _WORKLOAD_APPS:
        pods = mine.get(app, [])
        found = diagnose(_no_workload(pods), pods, events) if pods else None
        if found is not None:
            return found
    return None


def _without_driver(wanted: Mapping[str, List[Json]], pods: Sequence[Json]) -> Optional[Cause]:
    """A pod that looks for a driver on a node where no driver pod is to bring one."""
    if "driver" in wanted or not any(doing(pod) == "in driver-validation" for pod in pods):
        return None
    text = "no driver: no driver pod is to run there, and validation finds none on the host"
    remedy = "Install one there, set driver.enabled to true, or keep the stack off with the label "
    return Cause(text, f"{remedy}{OPERANDS}=false.")


def _in_a_check(pods: Sequence[Json]) -> Optional[Cause]:
    """The check of virtual machines that a pod has not come through yet."""
    found = (waits_in(doing(pod).removeprefix("in ")) for pod in pods)
    return next((cause for cause in found if cause is not None), None)


def _kept_away(node: Json, workload: Json) -> Optional[Cause]:
    """A taint that keeps the operand's pod from a node that wants it. Kubernetes' own taints come and go."""
    template = ((workload.get("spec") or {}).get("template") or {}).get("spec")
    if template is None:
        return None
    against = foreign_taints(node, template)
    if not against:
        return None
    text = f"the taint {against[0]} of the node keeps its pod away"
    return Cause(text, "Take the taint away, or add a toleration to daemonsets.tolerations of the policy.", FINAL)


def foreign_taints(node: Json, pod_spec: Json) -> List[str]:
    """Taints of the node, other than Kubernetes' own, that keep a pod away."""
    taints = [t for t in (node.get("spec") or {}).get("taints") or [] if not str(t.get("key")).startswith(_OWN_TAINTS)]
    return [describe(taint) for taint in taints if not tolerates(pod_spec, taint)]


def _paused(node: Json) -> str:
    labels = node["metadata"].get("labels") or {}
    paused = sorted(key for key, value in labels.items() if key.startswith(DEPLOY) and "paused-for" in value)
    return f"paused by {paused[0]}={labels[paused[0]]}" if paused else ""


def _offers_nothing(node: Json) -> Optional[Cause]:
    """A plugin that runs and has offered no GPU: it is ready all the same."""
    labels = node["metadata"].get("labels") or {}
    if offers(node) or labels.get(MIG_STATE, "success") not in ("success", "failed"):
        return None
    if "MIG-INVALID" in labels.get("nvidia.com/gpu.product", ""):
        return None
    text = "its pod runs, and the node offers no GPU"
    if for_machines(labels):
        return Cause(text, "See the log of the plugin's pod there, then delete the pod: it looks again.", MOMENT)
    remedy = "See whether nvidia-smi on the node shows its GPUs, then delete the plugin's pod, which looks again."
    return Cause(text, remedy, MOMENT)


def _namespace(made: Json) -> str:
    return str(made["metadata"].get("namespace") or "")


def _no_workload(pods: Sequence[Json]) -> Json:
    meta = pods[0]["metadata"]
    name = next((str(o["name"]) for o in meta.get("ownerReferences") or []), str(meta["name"]))
    head = {"name": name, "namespace": meta.get("namespace", "")}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": head}


def _after_operands(node: Json, labels: Mapping[str, str], reached: str) -> Stage:
    state = "" if for_machines(labels) else labels.get(MIG_STATE, "")
    if state and state != "success" and labels.get(MIG_CONFIG):
        text = f"{MIG_CONFIG}={labels[MIG_CONFIG]} is in state {state}"
        remedy = "See the log of the pod of nvidia-mig-manager on the node."
        return _stuck(reached, MIG, Cause(text, remedy, MOMENT) if state == "failed" else text)
    gaps = gaps_of(node)
    if gaps:
        remedy = (
            "Look for Xid errors in the node's kernel log; a GPU that is well again counts once the plugin restarts."
        )
        return _stuck(reached, ALLOCATABLE, Cause("; ".join(gaps), remedy, MOMENT))
    return Stage(READY, True)


# --- what the node offers --------------------------------------------------------------------------------------------


def offers(node: Json) -> Dict[str, int]:
    """GPU resources that the node's kubelet offers, by name, without those of count 0. Those for virtual machines have
    the name of a GPU or of a vGPU type."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    found = {name: whole(count) for name, count in allocatable.items() if _is_offer(node, name)}
    return {name: count for name, count in sorted(found.items()) if count > 0}


def _is_offer(node: Json, name: str) -> bool:
    if not for_machines(node["metadata"].get("labels") or {}):
        return name.startswith(_RESOURCES)
    return name.startswith(ANY_DEVICE) and not name.startswith(_RESOURCES)


def expected(labels: Mapping[str, str]) -> Dict[str, int]:
    """Resources that the hardware labels of GPU feature discovery promise, as far as they tell.

    ``gpu.count`` counts boards, or MIG devices with strategy single; it is never multiplied by ``gpu.replicas``. With
    strategy mixed a board in MIG mode offers its slices only, and the labels do not say how many boards that are: then
    ``nvidia.com/gpu`` is left out.
    """
    found: Dict[str, int] = {}
    slices = [key[: -len(".count")] for key in labels if key.startswith("nvidia.com/mig-") and key.endswith(".count")]
    for resource in slices:
        found[resource + _renamed(labels, resource)] = _number(labels, resource + ".count") * _replicas(
            labels, resource
        )
    if not slices and _number(labels, "nvidia.com/gpu.count") and labels.get("nvidia.com/gpu.replicas") != "0":
        name = "nvidia.com/gpu" + _renamed(labels, "nvidia.com/gpu")
        found[name] = _number(labels, "nvidia.com/gpu.count") * _replicas(labels, "nvidia.com/gpu")
    return found


def _renamed(labels: Mapping[str, str], resource: str) -> str:
    """Shared GPUs whose product does not say so are offered under a name of their own."""
    shared = _replicas(labels, resource) > 1
    return ".shared" if shared and not labels.get(f"{resource}.product", "").endswith("-SHARED") else ""


def _replicas(labels: Mapping[str, str], resource: str) -> int:
    return max(1, _number(labels, resource + ".replicas", 1))


def _number(labels: Mapping[str, str], key: str, default: int = 0) -> int:
    text = labels.get(key, "")
    return int(text) if text.isdigit() else default


def gaps_of(node: Json) -> List[str]:
    """What the node should offer and does not; [] when it offers all that its hardware has."""
    labels, have = node["metadata"].get("labels") or {}, offers(node)
    found = []
    capacity = (node.get("status") or {}).get("capacity") or {}
    if for_machines(labels):
        # How many there should be nobody tells; what was registered once tells of those that fell ill.
        once = {name: whole(count) for name, count in capacity.items() if _is_offer(node, name)}
        lost = [f"offers {have.get(n, 0)} of {c} {n}" for n, c in sorted(once.items()) if have.get(n, 0) < c]
        return lost or ([] if have else ["offers no GPU to virtual machines"])
    for resource, promised in sorted(expected(labels).items()):
        # What the plugin registered stays in the capacity when a GPU falls ill, whatever feature discovery sees then.
        count = max(promised, whole(capacity.get(resource)))
        if have.get(resource, 0) < count:
            found.append(f"offers {have.get(resource, 0)} {resource}, its hardware has {count}")
    unseen = unseen_gpus(node)
    if unseen:
        found.append(unseen)
    if "MIG-INVALID" in labels.get("nvidia.com/gpu.product", ""):
        found.append("its MIG layout does not fit the MIG strategy single: all GPUs must have slices of one kind")
    if not found and not have:
        found.append("offers no GPU")
    return found


def unseen_gpus(node: Json) -> str:
    """GPUs on the PCI bus, where those are known, that the driver does not see; "" when there are none.

    Of GPUs that are to be hidden it is told when they are seen all the same.
    """
    labels = node["metadata"].get("labels") or {}
    gpus = node.get("pciGpus") or {}
    there, seen = sum(gpus.values()), _number(labels, "nvidia.com/gpu.count")
    if is_mixed(gpus):
        # Feature discovery counts GPUs of one model; what the plugin registered is of all that the driver sees.
        resource = "nvidia.com/gpu" + _renamed(labels, "nvidia.com/gpu")
        capacity = (node.get("status") or {}).get("capacity") or {}
        seen = whole(capacity.get(resource)) // _replicas(labels, "nvidia.com/gpu")
    if node.get("hiddenGpus"):
        return unlike_hidden(node["hiddenGpus"], gpus, seen) if seen and there else ""
    return (
        f"the driver sees {seen} of the node's {there} GPUs" if 0 < seen < there and not has_mig_devices(labels) else ""
    )


# --- the row of a table ----------------------------------------------------------------------------------------------


def row(
    node: Json, pods: Iterable[Json] = (), daemonsets: Iterable[Json] = (), events: Sequence[Json] = ()
) -> Dict[str, Any]:
    """One node as ``gpu_cluster_info`` returns it: see the RETURN of that module."""
    labels = node["metadata"].get("labels") or {}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    at = stage(node, pods, daemonsets, events)
    gpus = node.get("pciGpus") or {}
    return {
        "name": node["metadata"]["name"],
        "product": labels.get("nvidia.com/gpu.product", ""),
        "models": models(gpus),
        "workload": served_now(labels),
        "gpus": sum(gpus.values())
        if is_mixed(gpus) or (gpus and for_machines(labels))
        else _number(labels, "nvidia.com/gpu.count", -1),
        "driver": driver_version(labels),
        "mig": mig_text(labels),
        "allocatable": offers(node),
        "units": sum(offers(node).values()),
        "stage": at.reached,
        "ready": at.ready,
        "failed": at.failed,
        "trouble": at.sentence,
        "os": _os_text(labels) or str(info.get("osImage", "")),
        "kernel": labels.get("feature.node.kubernetes.io/kernel-version.full") or str(info.get("kernelVersion", "")),
        "runtime": str(info.get("containerRuntimeVersion", "")),
    }


def rows(
    nodes: Iterable[Json], pods: Iterable[Json] = (), daemonsets: Iterable[Json] = (), events: Sequence[Json] = ()
) -> List[Dict[str, Any]]:
    """Rows of all GPU nodes, by name. Pods are sorted to their nodes once: clusters have thousands of both."""
    by_node: Dict[str, List[Json]] = {}
    for pod in pods:
        by_node.setdefault(str((pod.get("spec") or {}).get("nodeName") or ""), []).append(pod)
    known = list(daemonsets)
    # Where the PCI bus is known, labels that tell of a GPU are no proof of one.
    mine = [n for n in nodes if is_gpu_node(n["metadata"].get("labels") or {}) and n.get("pciGpus") != {}]
    found = [row(node, by_node.get(node["metadata"]["name"], []), known, events) for node in mine]
    return sorted(found, key=lambda one: str(one["name"]))


def is_gpu_node(labels: Mapping[str, str]) -> bool:
    """Whether a node has, or is treated as having, a GPU."""
    return has_gpu(labels) or labels.get(PRESENT) == "true"


def driver_version(labels: Mapping[str, str]) -> str:
    """The version of the loaded driver by GPU feature discovery's labels, "" while there is none."""
    full = labels.get("nvidia.com/cuda.driver-version.full")
    if full:
        return full
    for names in (("-version.major", "-version.minor", "-version.revision"), (".major", ".minor", ".rev")):
        parts = [labels.get("nvidia.com/cuda.driver" + name, "") for name in names]
        if parts[0]:
            return ".".join(part for part in parts if part)
    return ""


def mig_text(labels: Mapping[str, str]) -> str:
    """``all-1g.10gb (success), mixed``; "" where the GPUs have no MIG."""
    config, state = labels.get(MIG_CONFIG, ""), labels.get(MIG_STATE, "")
    if for_machines(labels):
        return ""
    if not config and not mig_capable(labels):
        return ""
    text = f"{config or 'not set'} ({state})" if state else config or "not set"
    strategy = labels.get("nvidia.com/mig.strategy", "")
    return f"{text}, {strategy}" if strategy else text


def _os_text(labels: Mapping[str, str]) -> str:
    prefix = "feature.node.kubernetes.io/system-os_release."
    return labels.get(prefix + "ID", "") + labels.get(prefix + "VERSION_ID", "")
