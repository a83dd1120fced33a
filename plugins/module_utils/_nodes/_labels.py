# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and annotations that put the operands on GPU nodes, by the rules of the GPU Operator.

A value that a person, or an operand (``paused-for-driver-upgrade``, ``pre-installed``), gave to a deploy label is kept.
What is written is remembered on the node (see ``_change``), and ``plan_removal`` gives it back.
"""

from __future__ import annotations

import re
from typing import List, Mapping

from .._plan import INFO, WARNING, Finding
from .._policy._model import Policy
from ._change import GROUP_MEMORY, POLICY_MEMORY, Draft, LabelChange, Node

FEATURE = "feature.node.kubernetes.io/"
PRESENT = "nvidia.com/gpu.present"
DEPLOY = "nvidia.com/gpu.deploy."
OPERANDS = DEPLOY + "operands"
MIG_MANAGER = DEPLOY + "mig-manager"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
WORKLOAD_CONFIG = "nvidia.com/gpu.workload.config"
UPGRADE_ENABLED = "nvidia.com/gpu-driver-upgrade-enabled"
ALL_DISABLED = "all-disabled"

GPU_LABELS = tuple(f"{FEATURE}{device}.present" for device in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))
CONTAINER_KEYS = tuple(
    DEPLOY + name
    for name in (
        "driver",
        "gpu-feature-discovery",
        "container-toolkit",
        "device-plugin",
        "dcgm",
        "dcgm-exporter",
        "node-status-exporter",
        "operator-validator",
        "client",
    )
)
# Keys of the operator's other stacks: sandbox workloads and DRA. gpu.deploy.dra-driver is not swept, because pods may
# hold claims of its driver.
OTHER_KEYS = tuple(
    DEPLOY + name
    for name in (
        "sandbox-device-plugin",
        "kata-sandbox-device-plugin",
        "sandbox-validator",
        "vfio-manager",
        "kata-manager",
        "cc-manager",
        "vgpu-manager",
        "vgpu-device-manager",
        "dra-validator",
        "dcgm-dra",
        "dcgm-exporter-dra",
    )
)
# Written by operands while they run: nobody else's once the operands are gone.
OPERAND_KEYS = (MIG_STATE, "nvidia.com/gpu-driver-upgrade-state", DEPLOY + "nvsm")

# Families that NVIDIA's MIG guide lists; products are the names that GPU feature discovery writes.
_MIG_PRODUCT = re.compile(
    r"(?:^|-)(?:A100X?|A800|A30X?|H100|H800|H20|H200|GH200|B200|B300|GB200|GB300"
    r"|RTX-PRO-(?:4500|5000|6000)-Blackwell)(?:-|$)",
    re.IGNORECASE,
)
_NFD_LISTED = "nfd.node.kubernetes.io/feature-labels"
_GFD_KEY = re.compile(
    r"nvidia\.com/(?:gfd\.timestamp|cuda\..+|mig\.(?:capable|strategy)|mps\.capable|vgpu\..+|mig-[^/]+\.[^/]+"
    r"|gpu\.(?:machine|product|count|replicas|sharing-strategy|memory|family|mode|clique|multiprocessors"
    r"|compute\..+|slices\..+|engines\..+))$"
)


def has_gpu(labels: Mapping[str, str]) -> bool:
    """Whether NFD has seen an NVIDIA GPU on the node."""
    return any(labels.get(key) == "true" for key in GPU_LABELS)


def has_features(labels: Mapping[str, str]) -> bool:
    """Whether NFD has labelled the node at all."""
    return any(key.startswith(FEATURE) for key in labels)


def mig_capable(labels: Mapping[str, str]) -> bool:
    """Whether the node's GPUs can be partitioned: by GPU feature discovery's word, else by the product's name."""
    if labels.get("nvidia.com/vgpu.host-driver-version"):
        return False
    said = labels.get("nvidia.com/mig.capable")
    if said is not None:
        return said == "true"
    return bool(_MIG_PRODUCT.search(labels.get("nvidia.com/gpu.product", "")))


def has_mig_devices(labels: Mapping[str, str]) -> bool:
    """Whether GPU feature discovery has seen MIG devices (it does not look with strategy none)."""
    if "-MIG-" in labels.get("nvidia.com/gpu.product", ""):
        return True
    return any(key.startswith("nvidia.com/mig-") and key.endswith(".count") for key in labels)


def transient(value: str) -> bool:
    """A value of a deploy label that an operand gave it while it worked, not a person."""
    return value in ("", "pre-installed", "paused-for-mig-change") or value.endswith("paused-for-driver-upgrade")


def plan_labels(policy: Policy, node: Node) -> LabelChange:
    """What has to change on a node for the operands of the policy to run there, or to leave it.

    The plan may set ``nvidia.com/mig.config``: ``_mig_guard.guard`` judges it by the node's pods.
    """
    draft = Draft(node, POLICY_MEMORY)
    if draft.first:
        draft.had = [key for key in OPERAND_KEYS if key in node.labels]
    _plan_present(draft)
    if draft.labels.values.get(PRESENT) != "true":
        _drop_all(draft, "the node has no GPU")
    elif node.labels.get(OPERANDS) == "false":
        _drop_all(draft, f"{OPERANDS} is false: no operand runs on this node")
    else:
        _plan_deploy(policy, draft)
    _plan_upgrade(policy, draft)
    return draft.change()


def _plan_present(draft: Draft) -> None:
    labels = draft.labels.values
    if has_gpu(labels):
        draft.put(PRESENT, "true", "NFD sees an NVIDIA GPU")
    elif labels.get(PRESENT) == "true":
        if has_features(labels):
            draft.put(PRESENT, "false", "NFD sees no NVIDIA GPU any more")
        else:
            # NFD being restarted, or reinstalled, must not take the operands away from running pods.
            detail = (
                "has no NFD label at all: whether it still has a GPU is not known, its operands are left as they are."
            )
            draft.find("nodes.nfd-missing", WARNING, detail, "See that Node Feature Discovery runs on the node.")


def _drop_all(draft: Draft, reason: str) -> None:
    for key in (*CONTAINER_KEYS, MIG_MANAGER, *OTHER_KEYS):
        draft.drop(key, reason, transient)


def _plan_deploy(policy: Policy, draft: Draft) -> None:
    labels = draft.labels.values
    _judge_workload(draft)
    for key in OTHER_KEYS:
        draft.drop(key, "belongs to sandbox workloads or DRA, which this stack does not run", transient)
    for key in CONTAINER_KEYS:
        _plan_key(draft, key, "the node has a GPU")
    if mig_capable(labels):
        _plan_key(draft, MIG_MANAGER, "the node's GPUs can be partitioned (MIG)")
        _plan_mig(policy, draft)
    if policy.driver.enabled and labels.get(DEPLOY + "driver") == "pre-installed":
        detail = "uses a driver that was installed on the host: the driver operand stays away from it."
        remedy = f"When that driver has been removed, remove the label {DEPLOY}driver: the next run sets it anew."
        draft.find("nodes.pre-installed", INFO, detail, remedy)


def _plan_key(draft: Draft, key: str, reason: str) -> None:
    if draft.labels.values.get(key):
        return
    before = draft.labels.was.get(key, "")
    if key not in draft.labels.ours and not transient(before) and before != "true":
        draft.labels.restore(key)
        draft.reasons[key] = "the value that a person had given it before the operands were taken away"
    else:
        draft.put(key, "true", reason)


def _judge_workload(draft: Draft) -> None:
    workload = draft.labels.values.get(WORKLOAD_CONFIG, "container")
    if workload in ("vm-passthrough", "vm-vgpu"):
        detail = f"{WORKLOAD_CONFIG} is {workload}: sandbox workloads are not supported yet, container is used."
        draft.find("nodes.workload-config", WARNING, detail, f"Remove the label, or set {OPERANDS} to false.")
    elif workload != "container":
        known = "container, vm-passthrough or vm-vgpu"
        detail = f"{WORKLOAD_CONFIG} is {workload!r} instead of {known}: container is used."
        draft.find("nodes.workload-config", WARNING, detail, "Correct or remove the label.")


def _plan_mig(policy: Policy, draft: Draft) -> None:
    labels = draft.labels.values
    if not policy.mig_manager.enabled or policy.mig_manager.config.default != ALL_DISABLED or labels.get(MIG_CONFIG):
        return
    if has_mig_devices(labels):
        detail = (
            f"has MIG devices that no {MIG_CONFIG} asked for: {ALL_DISABLED} would destroy them, so no label is set."
        )
        draft.find(
            "nodes.foreign-mig", WARNING, detail, f"Set the label {MIG_CONFIG} to the layout that the node is to have."
        )
        return
    draft.put(MIG_CONFIG, ALL_DISABLED, "the MIG manager starts from the policy's default layout")


def _plan_upgrade(policy: Policy, draft: Draft) -> None:
    if policy.driver.use_nvidia_driver_crd or draft.labels.values.get(PRESENT) is None:
        return
    wanted = policy.driver.enabled and policy.driver.upgrade_policy.auto_upgrade
    if wanted and draft.labels.values[PRESENT] == "true":
        if draft.annotations.put(UPGRADE_ENABLED, "true"):
            draft.reasons[UPGRADE_ENABLED] = (
                "driver upgrades are rolled out, the driver manager leaves eviction to that"
            )
    elif draft.annotations.drop(UPGRADE_ENABLED, lambda _value: False):
        draft.reasons[UPGRADE_ENABLED] = "no driver upgrade is rolled out to this node"


# -- giving back ------------------------------------------------------------------------------------------------------


def plan_removal(node: Node, nfd_ours: bool = False) -> LabelChange:
    """Gives back all labels and annotations that we changed on a node, those of node groups too.

    Labels that NFD and GPU feature discovery wrote go only when the NFD that wrote them was ours: another NFD takes GPU
    feature discovery's labels away by itself, when the feature object of the removed operand is gone. What stays is a
    finding.
    Taints are given back by ``_taints.plan_removal``.
    """
    inner = _give_back(node, GROUP_MEMORY, False)
    labels, annotations = inner.applied(node)
    outer = _give_back(_Plain(node.name, labels, annotations), POLICY_MEMORY, nfd_ours)
    return joined(node, inner, outer)


class _Plain:
    def __init__(self, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        self.name = name
        self.labels = labels
        self.annotations = annotations


def _give_back(node: Node, memory_key: str, nfd_ours: bool) -> LabelChange:
    draft = Draft(node, memory_key)
    changed = draft.labels.give_back(lambda key, value: key.startswith(DEPLOY) and transient(value))
    draft.annotations.give_back(lambda _key, _value: False)
    if memory_key == POLICY_MEMORY:
        if not draft.first:
            _drop_written(draft)
        if nfd_ours:
            _drop_features(draft)
        _list_left(draft, changed)
    change = draft.change()
    reasons = dict.fromkeys([*change.set, *change.remove], "was not there, or had this value, before our first run")
    return _with_reasons(change, {**reasons, **change.reasons})


def _with_reasons(change: LabelChange, reasons: Mapping[str, str]) -> LabelChange:
    return LabelChange(**{**change.__dict__, "reasons": reasons})


def _drop_written(draft: Draft) -> None:
    for key in OPERAND_KEYS:
        if key in draft.labels.values and key not in draft.had:
            del draft.labels.values[key]
            draft.reasons[key] = "was written by an operand that is removed"


def _drop_features(draft: Draft) -> None:
    """Takes away what our NFD listed as its own, and GPU feature discovery's labels, which came through it."""
    notes = draft.annotations.values
    listed = [name.strip() for name in notes.get(_NFD_LISTED, "").split(",") if name.strip()]
    written = {name if "/" in name else FEATURE + name for name in listed}
    for key in list(draft.labels.values):
        if key in written or (_GFD_KEY.match(key) and key not in draft.had):
            del draft.labels.values[key]
            draft.reasons[key] = "was written by the Node Feature Discovery that is removed"
    for key in [k for k in notes if k.startswith("nfd.node.kubernetes.io/")]:
        del notes[key]
        draft.reasons[key] = "was written by the Node Feature Discovery that is removed"


def _list_left(draft: Draft, changed: List[str]) -> None:
    labels = draft.labels.values
    if changed:
        detail = f"keeps {', '.join(changed)}: changed by somebody else after us."
        draft.find("nodes.left-changed", INFO, detail)
    nvidia = sorted(k for k in labels if k.startswith("nvidia.com/") and k not in changed)
    if nvidia:
        draft.find("nodes.left", INFO, f"keeps {', '.join(nvidia)}: not written by us.")
    features = [k for k in labels if k.startswith(FEATURE)]
    if features:
        draft.find(
            "nodes.left-features", INFO, f"keeps {len(features)} labels {FEATURE}*: written by an NFD that is not ours."
        )


def joined(node: Node, first: LabelChange, second: LabelChange) -> LabelChange:
    """Two changes of a node, one after the other, as one."""
    labels, notes = first.applied(node)
    labels, notes = second.applied(_Plain(node.name, labels, notes))
    keys = {**node.annotations, **node.labels}
    label_set = {k: v for k, v in labels.items() if node.labels.get(k) != v}
    note_set = {k: v for k, v in notes.items() if node.annotations.get(k) != v}
    label_gone = tuple(sorted(k for k in node.labels if k not in labels))
    note_gone = tuple(sorted(k for k in node.annotations if k not in notes))
    touched = [*label_set, *label_gone, *note_set, *note_gone]
    findings: List[Finding] = [*first.findings, *second.findings]
    return LabelChange(
        node=node.name,
        set=label_set,
        remove=label_gone,
        annotations_set=note_set,
        annotations_remove=note_gone,
        taints=second.taints if second.taints is not None else first.taints,
        reasons={
            k: v for k, v in {**first.reasons, **second.reasons}.items() if k in touched or k.startswith("taint ")
        },
        was={k: keys[k] for k in touched if k in keys},
        findings=tuple(findings),
    )
