# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people do about what the kubelet, the API server and NVIDIA's containers say: cause, next step, patience.

A table, and the choice from it. The words that are looked for are those of the programs themselves.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Pattern, Sequence, Tuple

from .._kube._wait import Trouble, no_handler

# How long a trouble may last until it counts as broken for good: waiting is no use, it may mend itself in a moment,
# it heals at times (back-off of the kubelet is five minutes at most).
FINAL, MOMENT, LONG = "final", "moment", "long"
# A container that ended so often has gone through most of its back-off.
MANY_RESTARTS = 5
SILENT = "ends again and again"  # without what it said behind it: nothing is known of why


class Cause(NamedTuple):
    """``text``: what is wrong. ``remedy``: what a person does about it. ``patience``: see above."""

    text: str
    remedy: str
    patience: str = LONG


class _Known(NamedTuple):
    words: Pattern[str]
    text: str
    remedy: str


def _known(words: str, text: str, remedy: str) -> _Known:
    return _Known(re.compile(words, re.IGNORECASE), text, remedy)


# What containers say before they end. The first that fits wins.
_SAID: Tuple[_Known, ...] = (
    _known(
        r"has no GPU that hidden_gpus names",
        "none of the GPUs that the node is to hide is there",
        "Correct hidden_gpus of its node group.",
    ),
    _known(
        r"hidden_gpus names all",
        "all GPUs of the node are to be hidden",
        "Leave one out of hidden_gpus of its node group, or keep the operands off the node with the label "
        "nvidia.com/gpu.deploy.operands=false.",
    ),
    _known(
        r"cannot be hidden in this container|/dev is not this container's own",
        "a GPU cannot be hidden in its pods",
        "Hide it on the host with NVreg_ExcludedGpus, and take hidden_gpus out of the group of the node.",
    ),
    _known(
        r"nouveau",
        "the kernel's own driver nouveau holds the GPU and cannot be unloaded",
        "Blacklist nouveau on the host, rebuild its initramfs and reboot it.",
    ),
    _known(
        r"No precompiled package found for kernel",
        "there is no precompiled driver for the node's kernel",
        "Boot a kernel that has one, or set driver.usePrecompiled to false.",
    ),
    _known(
        r"precompiled for",
        "the precompiled driver is for another kernel than the node runs",
        "Run again, so that the node gets the driver of its kernel, or set driver.usePrecompiled to false.",
    ),
    _known(
        r"Could not resolve Linux kernel version|linux-headers|kernel-headers|kernel-devel",
        "the headers of the node's kernel cannot be found",
        "Let the node reach the package repository of its system (driver.repoConfig), or boot a kernel that is in it.",
    ),
    _known(
        r"Required key not available|Key was rejected|Lockdown",
        "Secure Boot refuses the driver's modules, which are not signed with a key that the host knows",
        "Enrol the key on the host, use a precompiled signed driver, or switch Secure Boot off.",
    ),
    _known(
        r"requires use of the open kernel modules|does not include the required GPU System Processor"
        r"|open kernel modules do not support",
        "this kind of kernel module does not support the node's GPUs",
        "Set driver.kernelModuleType to auto.",
    ),
    _known(
        r"system not yet initialized|fabric ?manager|error 802",
        "CUDA finds an NVSwitch system that is not initialized, so its fabric manager does not run",
        "Start nvidia-fabricmanager of the driver's version on the host; a driver container starts its own, see its "
        "log.",
    ),
    _known(
        r"unable to unload the driver|Module nvidia is in use|GPU is in use",
        "the old driver cannot be unloaded, because something still uses the GPU",
        "End what uses it, drain the node, or allow driver.manager's eviction and drain.",
    ),
    _known(
        r"could not load NVML|Failed to initialize NVML|libnvidia-ml|NVML: Unknown|Driver Not Loaded",
        "the container does not see the driver (NVML)",
        "Look at the driver and the container toolkit of the node; its runtime may need a restart.",
    ),
    _known(
        r"minor number.{0,60}not supported|not supported.{0,60}minor number",
        "the node's boards do not tell their device numbers, without which MPS cannot share them",
        "Give the node another configuration of the device plugin, such as one with timeSlicing, by its label "
        "nvidia.com/device-plugin.config.",
    ),
    _known(
        r"no CUDA-capable device|No devices were found|no supported GPU",
        "the driver sees no GPU",
        "Look for Xid errors and PCI errors in the node's kernel log, and power-cycle it.",
    ),
    _known(
        r"is forbidden: User",
        "its service account lacks a right",
        "Run gpufleet.nvidia.cluster_policy again, which puts the roles back.",
    ),
)

# Init containers that try whether GPUs can be given to virtual machines: what it means when one fails, or never ends.
_CHECKS = {
    "vfio-pci-validation": Cause(
        "GPUs of the node are not bound to vfio-pci",
        "See the log of the VFIO manager's pod there: the IOMMU must be on, in the firmware and by intel_iommu=on or "
        "amd_iommu=on on the kernel's command line, and no driver may hold a GPU. It binds once: then delete that pod.",
    ),
    "vgpu-manager-validation": Cause(
        "the vGPU manager does not work on the node, or none of its GPUs can be cut into vGPUs",
        "See the log of the vGPU manager's pod there; its GPUs must support vGPU, and SR-IOV and the IOMMU must be on "
        "in the firmware.",
    ),
    "vgpu-devices-validation": Cause(
        "there are no vGPUs on the node",
        "See the log of the vGPU device manager's pod there: the set that nvidia.com/vgpu.config names must have vGPU "
        "types of the node's GPUs.",
    ),
    "cc-manager-validation": Cause(
        "the confidential computing mode of the node's GPUs is not set",
        "See the log of the pod of nvidia-cc-manager there: GPUs, CPU and firmware must all support that mode.",
    ),
}

_PULLS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_KERNEL_TAG = re.compile(r":\d+(?:\.\d+)*-(?P<kernel>\d+\.\d+\.\d+-?\S*)-[a-z]+[0-9.]+$")
_DENIED = re.compile(r"unauthorized|authentication required|401|403|denied", re.IGNORECASE)
_LONGEST = 240  # characters of what a program said that are shown


def cause_of(layer: str, trouble: Trouble, namespace: str = "") -> Cause:
    """The cause of a trouble in a layer, with what to do about it."""
    if trouble.reason in _PULLS:
        return _pull(layer, trouble)
    if trouble.reason == "FailedCreate":
        return _refusal(trouble.raw)
    if trouble.reason == "FailedCreatePodSandBox":
        return _sandbox(trouble.raw)
    fixed = _FIXED.get(trouble.reason)
    if fixed is not None:
        return fixed._replace(text=f"{fixed.text}{_said('', trouble.raw)}")
    return _ended(trouble, namespace)


_FIXED = {
    "NodeNotReady": Cause(
        "the node is not ready", "See kubelet and container runtime on the node; it goes on once the node is Ready."
    ),
    "Terminating": Cause("the old pod does not end", "See what holds it on the node, or delete it by force.", LONG),
    "FailedMount": Cause(
        "a volume of its pod cannot be mounted", "Make what the volume names (ConfigMap, Secret, folder of the host)."
    ),
    "Unschedulable": Cause("no node takes its pod", "Make room or change what the pod asks for."),
    "OOMKilled": Cause("it ran out of memory", "Give it a higher limit: resources of this component in the policy."),
}


def _pull(layer: str, trouble: Trouble) -> Cause:
    kernel = _KERNEL_TAG.search(trouble.image)
    if layer == "driver" and kernel and trouble.final:
        text = f"there is no precompiled driver for kernel {kernel.group('kernel')}: no image {trouble.image}"
        return Cause(text, "Boot a kernel that has one, or set driver.usePrecompiled to false.", FINAL)
    # The kubelet repeats the reference several times; what counts stands at the end.
    said = " ".join(trouble.raw.split()).rsplit(": ", 1)[-1]
    text = f"image {trouble.image} cannot be pulled{_said(trouble.container, said)}"
    if _DENIED.search(trouble.raw):
        return Cause(text, "Give the component imagePullSecrets that may read this repository.")
    if trouble.final:
        return Cause(text, "Correct repository, image or version in the policy, or mirror the image.", FINAL)
    return Cause(text, "See that the node reaches the registry (DNS, proxy, rate limit).")


def _sandbox(raw: str) -> Cause:
    if no_handler(raw):
        return Cause(
            f"the node's container runtime does not know the runtime handler{_said('', raw)}",
            "See that the runtime reads the file that the container toolkit wrote, and restart the runtime.",
            MOMENT,
        )
    return Cause(f"its pod cannot be set up{_said('', raw)}", "See network plugin and container runtime of the node.")


def _refusal(raw: str) -> Cause:
    if "violates PodSecurity" in raw:
        return Cause(
            f"pod security of the namespace refuses its pods{_said('', raw)}",
            "Label the namespace pod-security.kubernetes.io/enforce=privileged (psa.enabled may do that).",
            MOMENT,
        )
    if "insufficient quota to match these scopes" in raw:
        text = "the cluster allows the priority class of its pods only where a ResourceQuota names it"
        return Cause(f"{text}{_said('', raw)}", "Make a ResourceQuota for that class in the namespace.", MOMENT)
    if "exceeded quota" in raw or "must specify" in raw:
        remedy = "Raise the ResourceQuota of the namespace, or take it away."
        return Cause(f"a ResourceQuota refuses its pods{_said('', raw)}", remedy, MOMENT)
    if "failed calling webhook" in raw:
        remedy = "Bring the webhook's service back, or exclude the namespace in its configuration."
        return Cause(f"an admission webhook does not answer{_said('', raw)}", remedy)
    if "webhook" in raw or "admission" in raw.lower():
        remedy = "Exclude the namespace in the webhook's or policy's configuration."
        return Cause(f"an admission policy refuses its pods{_said('', raw)}", remedy)
    return Cause(f"its pods are refused{_said('', raw)}", "Mend what the API server names.")


def waits_in(container: str) -> Optional[Cause]:
    """What keeps a check of virtual machines from ending; None for other containers."""
    check = _CHECKS.get(container)
    return check._replace(text=f"{check.text} (still in {container})") if check else None


def _ended(trouble: Trouble, namespace: str) -> Cause:
    """A container that ends, or cannot start."""
    for known in _SAID:
        if known.words.search(trouble.raw):
            patience = FINAL if trouble.restarts > 1 else MOMENT
            return Cause(f"{known.text}{_said(trouble.container, trouble.raw)}", known.remedy, patience)
    patience = FINAL if trouble.restarts >= MANY_RESTARTS else LONG
    check = _CHECKS.get(trouble.container)
    if check is not None:
        return check._replace(text=f"{check.text}{_said(trouble.container, trouble.raw)}", patience=patience)
    if "ran out of memory" in trouble.message:
        text = f"the container {trouble.container} ran out of memory"
        return Cause(text, _FIXED["OOMKilled"].remedy, patience)
    if trouble.reason in ("CrashLoopBackOff", "Error", "ContainerCannotRun", "StartError"):
        text = f"the container {trouble.container} {SILENT}{_said('', trouble.raw)}"
        return Cause(text, f"See its log: {_log_of(trouble, namespace)}", patience)
    what = f"container {trouble.container}" if trouble.container else "its pod"
    return Cause(f"{what} cannot start{_said('', trouble.raw or trouble.message)}", "Mend what is named there.")


def _said(container: str, raw: str) -> str:
    """What a program said, behind a cause."""
    text = " ".join(raw.split())
    if not text:
        return ""
    short = text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + "..."
    return f" ({container}: {short})" if container else f" ({short})"


def _log_of(trouble: Trouble, namespace: str) -> str:
    where = f"-n {namespace} " if namespace else ""
    return f"kubectl logs {where}--previous {trouble.pod} -c {trouble.container}."


def one_sentence(layer: str, text: str, remedy: str) -> str:
    """``driver failed: CAUSE. WHAT TO DO``."""
    end = "" if text.endswith((".", "!", "?")) else "."
    return f"{layer} failed: {text}{end} {remedy}".rstrip()


def names(found: Sequence[str], most: int = 10) -> str:
    """``node a``, ``nodes a, b and c``, ``nodes a, b and 20 more``."""
    if len(found) == 1:
        return f"node {found[0]}"
    shown = list(found[:most]) if len(found) > most else list(found[:-1])
    last = f"{len(found) - most} more" if len(found) > most else found[-1]
    return f"nodes {', '.join(shown)} and {last}"
