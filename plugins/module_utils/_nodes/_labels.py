# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and annotations that put the operands on GPU nodes, by the rules of the GPU Operator.

A value that a person, or an operand (``paused-for-driver-upgrade``, ``pre-installed``), gave to a deploy label is kept.
What is written is remembered on the node (see ``_change``), and ``_removal`` gives it back.
"""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from .._plan import INFO, WARNING
from .._policy._model import Policy
from ._change import POLICY_MEMORY, Draft, LabelChange, Node
from ._drivers import DRIVER_LABEL
from ._keys import (
    ALL_DISABLED,
    CONTAINER,
    CONTAINER_KEYS,
    DEPLOY,
    MIG_CONFIG,
    MIG_MANAGER,
    OPERAND_KEYS,
    OPERANDS,
    OTHER_KEYS,
    PASSTHROUGH,
    PRESENT,
    UPGRADE_ENABLED,
    VGPU,
    WORKLOAD_CONFIG,
    WORKLOADS,
    has_features,
    has_gpu,
    has_mig_devices,
    mig_capable,
    transient,
)
from ._mig_guard import holding, refusal
from ._removal import plan_removal
from ._runtimes import RUNTIME_LABEL
from ._workload import for_machines, keys_of, possible, served_now, workload_of

__all__ = ["has_features", "has_gpu", "mig_capable", "plan_labels", "plan_removal"]

_END_THEM = "End these pods (stop or migrate virtual machines), then run again."
_ALL_KEYS = (*CONTAINER_KEYS, MIG_MANAGER, *OTHER_KEYS)
_DROPPED = (
    "the node's GPUs are for virtual machines",
    "belongs to virtual machines or DRA, which the node does not serve",
)


def plan_labels(
    policy: Policy,
    node: Node,
    busy: Sequence[str] = (),
    apart: Optional[Mapping[str, str]] = None,
    driver_gone: bool = False,
    no_gpu: bool = False,
    machines: Sequence[str] = (),
    hides: bool = False,
) -> LabelChange:
    """What has to change on a node for the operands of the policy to run there, or to leave it.

    ``busy``: users' pods that hold GPUs of the node (``_mig_guard.busy_pods``): with any, ``nvidia.com/mig.config`` is
    not set. They need to be known only where ``touches_mig`` is true of a plan without them. ``apart``: labels of ours
    that choose the node's toolkit or driver, where it has another than most nodes. ``driver_gone``: the driver that a
    driver manager once found on the host is there no more, so its mark goes (P137). ``no_gpu``: NFD's label tells of a
    GPU that is not on the node's PCI bus. ``machines``: users' pods that hold any device of NVIDIA there, as those of
    virtual machines do. They and ``busy`` keep the node with the workload that it has. ``hides``: some of its GPUs are
    hidden, so neither a MIG manager nor virtual machines may have them.
    """
    draft = Draft(node, POLICY_MEMORY)
    if draft.first:
        empty = [key for key, value in node.labels.items() if key.startswith(DEPLOY) and value == ""]
        draft.had = sorted({*empty, *(key for key in OPERAND_KEYS if key in node.labels)})
    _plan_present(draft, no_gpu)
    if draft.labels.values.get(PRESENT) != "true":
        _drop_all(draft, "the node has no GPU", machines)
    elif node.labels.get(OPERANDS) == "false":
        _drop_all(draft, f"{OPERANDS} is false: no operand runs on this node", machines)
    else:
        if driver_gone and draft.labels.values.get(DEPLOY + "driver") == "pre-installed":
            draft.put(DEPLOY + "driver", "true", "the driver that was installed on the host is there no more")
        _plan_deploy(policy, draft, busy, machines, hides)
        _plan_apart(draft, apart or {})
    _plan_upgrade(policy, draft)
    return draft.change()


def _plan_present(draft: Draft, no_gpu: bool) -> None:
    labels = draft.labels.values
    if has_gpu(labels) and not no_gpu:
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


def _drop_all(draft: Draft, reason: str, machines: Sequence[str]) -> None:
    now = served_now(draft.labels.values)
    if machines and for_machines(draft.labels.values):
        detail = f"keeps the operands of {now}, though {reason}: {holding(machines)}."
        draft.find("nodes.workload-busy", WARNING, detail, _END_THEM)
        return
    for key in _ALL_KEYS:
        draft.drop(key, reason, transient)
    _plan_apart(draft, {})


def _plan_deploy(policy: Policy, draft: Draft, busy: Sequence[str], machines: Sequence[str], hides: bool) -> None:
    labels = draft.labels.values
    workload = _plan_workload(policy, draft, busy, machines, hides)
    keys = keys_of(policy)[workload]
    for key in _ALL_KEYS:
        if key not in keys and not (key == MIG_MANAGER and workload == CONTAINER):
            draft.drop(key, _DROPPED[workload == CONTAINER], transient)
    for key in keys:
        _plan_key(draft, key, "the node has a GPU" if workload == CONTAINER else f"its GPUs are for {workload}")
    if workload != CONTAINER:
        return
    if hides:
        _plan_no_mig(draft)
    elif mig_capable(labels):
        _plan_key(draft, MIG_MANAGER, "the node's GPUs can be partitioned (MIG)")
        _plan_mig(policy, draft, busy)
    if policy.driver.enabled and labels.get(DEPLOY + "driver") == "pre-installed":
        detail = "uses a driver that was installed on the host: the driver operand stays away from it."
        remedy = "When that driver has been removed, a run some minutes later brings the operand's."
        draft.find("nodes.pre-installed", INFO, detail, remedy)


def _plan_no_mig(draft: Draft) -> None:
    draft.drop(
        MIG_MANAGER, "some of the node's GPUs are hidden, and the MIG manager would partition them, too", transient
    )
    config = draft.labels.values.get(MIG_CONFIG, "")
    if config not in ("", ALL_DISABLED):
        detail = f"has {MIG_CONFIG}={config} and hides GPUs: no MIG manager runs there, so the layout stays as it is."
        draft.find("nodes.hidden-mig", WARNING, detail, "Take the label away, or take hidden_gpus out of its group.")


def _plan_apart(draft: Draft, apart: Mapping[str, str]) -> None:
    for key, what in ((RUNTIME_LABEL, "container runtime"), (DRIVER_LABEL, "driver")):
        if key in apart:
            draft.put(key, apart[key], f"its {what} is set up in another way than on most nodes")
        elif key in draft.labels.ours and draft.labels.undo(key, lambda _value: False):
            draft.reasons[key] = f"its {what} is set up as on most nodes"


def _plan_key(draft: Draft, key: str, reason: str) -> None:
    if draft.labels.values.get(key):
        return
    before = draft.labels.was.get(key, "")
    if key not in draft.labels.ours and not transient(before) and before != "true":
        draft.labels.restore(key)
        draft.reasons[key] = "the value that a person had given it before the operands were taken away"
    else:
        draft.put(key, "true", reason)


def _plan_workload(policy: Policy, draft: Draft, busy: Sequence[str], machines: Sequence[str], hides: bool) -> str:
    """What the node is to serve: what is wanted, or what it serves now while that cannot change."""
    _judge_workload(policy, draft)
    labels = draft.labels.values
    wanted, now = workload_of(policy, labels), served_now(labels)
    if labels.get(DEPLOY + "driver") == "pre-installed" and _unloads_driver(policy, wanted):
        detail = (
            f"cannot serve {wanted}: a driver is installed on its host, which no operand unloads. container is used."
        )
        remedy = "Remove the driver from the host and run again some minutes later, or take the node out of "
        draft.find("nodes.workload-driver", WARNING, detail, f"{remedy}{WORKLOAD_CONFIG}={wanted}.")
        wanted = CONTAINER
    if hides and wanted != CONTAINER:
        detail = f"hides GPUs, and cannot serve {wanted}: virtual machines get all GPUs of a node. container is used."
        remedy = f"Take hidden_gpus out of its group, or set its label {WORKLOAD_CONFIG} to container."
        draft.find("nodes.workload-hidden", WARNING, detail, remedy)
        wanted = CONTAINER
    held = busy if now == CONTAINER else machines
    if now in ("", wanted) or not held:
        return wanted
    detail = f"keeps the workload {now} and does not get {wanted} yet: {holding(held)}."
    draft.find("nodes.workload-busy", WARNING, detail, _END_THEM)
    return now


def _unloads_driver(policy: Policy, workload: str) -> bool:
    """Whether an operand of the workload first has to unload a driver: its driver manager fails on one of the host."""
    manager = {PASSTHROUGH: policy.vfio_manager, VGPU: policy.vgpu_manager}.get(workload)
    return manager is not None and manager.enabled


def _judge_workload(policy: Policy, draft: Draft) -> None:
    said = draft.labels.values.get(WORKLOAD_CONFIG, "")
    if not said or (said in possible(policy) and (said == CONTAINER or policy.sandbox_workloads.enabled)):
        return
    used = f"{workload_of(policy, draft.labels.values)} is used."
    if said not in WORKLOADS:
        detail = f"{WORKLOAD_CONFIG} is {said!r} instead of {', '.join(WORKLOADS)}: {used}"
        draft.find("nodes.workload-config", WARNING, detail, "Correct or remove the label.")
    elif not policy.sandbox_workloads.enabled:
        detail = f"{WORKLOAD_CONFIG} is {said}, and sandboxWorkloads.enabled is false: {used}"
        draft.find(
            "nodes.workload-config", WARNING, detail, "Remove the label, or set sandboxWorkloads.enabled to true."
        )
    else:
        detail = f"{WORKLOAD_CONFIG} is {said}, and machines of sandboxWorkloads.mode kata have whole GPUs only: {used}"
        draft.find("nodes.workload-config", WARNING, detail, f"Set it to {' or '.join(possible(policy))}.")


def _plan_mig(policy: Policy, draft: Draft, busy: Sequence[str]) -> None:
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
    if busy:
        draft.findings.append(refusal(draft.node.name, ALL_DISABLED, busy, WARNING))
        return
    draft.put(MIG_CONFIG, ALL_DISABLED, "the MIG manager starts from the policy's default layout")


def _plan_upgrade(policy: Policy, draft: Draft) -> None:
    if policy.driver.use_nvidia_driver_crd or draft.labels.values.get(PRESENT) is None:
        return
    wanted = policy.driver.enabled and policy.driver.upgrade_policy.auto_upgrade
    wanted = wanted and not for_machines(draft.labels.values)
    if wanted and draft.labels.values[PRESENT] == "true":
        if draft.annotations.put(UPGRADE_ENABLED, "true"):
            draft.reasons[UPGRADE_ENABLED] = (
                "driver upgrades are rolled out, the driver manager leaves eviction to that"
            )
    elif draft.annotations.drop(UPGRADE_ENABLED, lambda _value: False):
        draft.reasons[UPGRADE_ENABLED] = "no driver upgrade is rolled out to this node"
