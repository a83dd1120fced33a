# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults, and the sentence that a person reads about each. The tests compare runs with them, and docs/faults.md is
made of them."""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """``title``: what is wrong, for the table. ``control``: what the simulator is told. ``sentence``: what is read."""

    title: str
    control: dict[str, Any]
    sentence: str


NODES = {
    "bad-nouveau": Fault(
        "nouveau holds the GPU",
        {"nouveau": True},
        "driver failed: the kernel's own driver nouveau holds the GPU and cannot be unloaded (nvidia-driver-ctr: "
        "modprobe: ERROR: could not insert 'nvidia': No such device (nouveau is loaded)). Blacklist nouveau on the "
        "host, rebuild its initramfs and reboot it.",
    ),
    "bad-kernel": Fault(
        "no precompiled package for the kernel",
        {"no_precompiled": True},
        "driver failed: there is no precompiled driver for the node's kernel (nvidia-driver-ctr: No precompiled "
        "package found for kernel 6.8.0-60-generic). Boot a kernel that has one, or set driver.usePrecompiled to "
        "false.",
    ),
    "bad-crash": Fault(
        "the driver container ends again and again",
        {"driver_crash": "NVRM: RmInitAdapter failed! (0x62:0x40:1860)"},
        "driver failed: the container nvidia-driver-ctr ends again and again (NVRM: RmInitAdapter failed! "
        "(0x62:0x40:1860)). See its log: kubectl logs -n gpu-operator --previous nvidia-driver-daemonset-xxxxx -c "
        "nvidia-driver-ctr.",
    ),
    "bad-handler": Fault(
        "the runtime does not know the handler",
        {"no_handler": True},
        "device plugin failed: the node's container runtime does not know the runtime handler (Failed to create pod "
        'sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "nvidia" is '
        "configured). See that the runtime reads the file that the container toolkit wrote, and restart the runtime.",
    ),
    "bad-fabric": Fault(
        "no fabric manager on an NVSwitch system",
        {"no_fabric_manager": True},
        "validator failed: CUDA finds an NVSwitch system that is not initialized, so its fabric manager does not run "
        "(cuda-validation: [Vector addition of 50000 elements] Failed to allocate device vector A (error code system "
        "not yet initialized)!). Start nvidia-fabricmanager of the driver's version on the host; a driver container "
        "starts its own, see its log.",
    ),
    "bad-plugin": Fault(
        "the device plugin sees no GPU",
        {"gpus_visible": 0},
        "device plugin failed: its pod runs, and the node offers no GPU. See whether nvidia-smi on the node shows its "
        "GPUs, then delete the plugin's pod, which looks again.",
    ),
    "bad-board": Fault(
        "fewer GPUs than the hardware has",
        {"gpus_visible": 3},
        "allocatable failed: the driver sees 3 of the node's 4 GPUs. Look for Xid errors in the node's kernel log; a "
        "GPU that is well again counts once the plugin restarts.",
    ),
    "bad-exporter": Fault(
        "the exporter ends again and again",
        {"crash": {"nvidia-dcgm-exporter": "out of file descriptors"}},
        "DCGM exporter failed: the container nvidia-dcgm-exporter ends again and again (out of file descriptors). See "
        "its log: kubectl logs -n gpu-operator --previous nvidia-dcgm-exporter-xxxxx -c nvidia-dcgm-exporter.",
    ),
    "bad-node": Fault(
        "the node is not ready",
        {"down": "PLEG is not healthy: pleg was last seen active 3m0s ago"},
        "node failed: the node is not ready (PLEG is not healthy: pleg was last seen active 3m0s ago). See kubelet and "
        "container runtime on the node; it goes on once the node is Ready.",
    ),
    "bad-taint": Fault(
        "a taint that operands do not tolerate",
        {},
        "driver failed: the taint dedicated=batch:NoExecute of the node keeps its pod away. Take the taint away, or "
        "add a toleration to daemonsets.tolerations of the policy.",
    ),
}


def plain(sentence: str) -> str:
    """A sentence without the random part of a pod's name."""
    return re.sub(r"((?:nvidia|gpu)-[a-z-]+)-[a-z0-9]{5}\b", r"\1-xxxxx", sentence)


class Words(NamedTuple):
    """``title``: what is wrong. ``parts``: what is read, in this order, with what differs from case to case between."""

    title: str
    parts: tuple[str, ...]

    def said_by(self, text: str) -> bool:
        """Whether a message says it."""
        return re.search(".*".join(re.escape(part) for part in self.parts), text, re.DOTALL) is not None

    @property
    def sentence(self) -> str:
        """For the table."""
        return " (...) ".join(self.parts)


CLUSTER = {
    "pod security": Words(
        "pod security of the namespace",
        (
            "NFD failed: pod security of the namespace refuses its pods",
            "Label the namespace pod-security.kubernetes.io/enforce=privileged (psa.enabled may do that).",
        ),
    ),
    "webhook": Words(
        "a webhook that does not answer",
        (
            "DCGM exporter failed: an admission webhook does not answer",
            "Bring the webhook's service back, or exclude the namespace in its configuration.",
        ),
    ),
    "quota": Words(
        "a quota without room", ("ResourceQuota", "Raise the ResourceQuota of the namespace, or take it away.")
    ),
    "NFD absent": Words("no NFD", ("no node has labels of Node Feature Discovery, so no GPU is known",)),
    "labels missing": Words("a node whose labels are gone", ("labels: the node has no labels that ask for operands",)),
    "NFD kept away": Words(
        "a taint that NFD does not tolerate",
        ("has no labels of NFD, since the taint dedicated=batch:NoSchedule keeps its worker away",),
    ),
    "two NFDs": Words(
        "two NFDs",
        (
            "2 Node Feature Discoveries run, which write the same labels of nodes:",
            "Remove all but one; with nfd.enabled false the collection deploys none.",
        ),
    ),
    "image": Words(
        "an image that no registry has",
        (
            "CUDA toolkit failed: image nvcr.io/nvidia/cuda:13.0.1-devel-ubuntu24.04 cannot be pulled",
            "Correct repository, image or version in the policy, or mirror the image.",
        ),
    ),
    "hidden GPU": Words(
        "a GPU to hide that is not on its node",
        (
            "device plugin failed: none of the GPUs that the node is to hide is there",
            "Correct hidden_gpus of its node group.",
        ),
    ),
    "refused pods": Words(
        "users' pods that a node's kubelet refuses",
        (
            "its kubelet refused 3 pods with GPUs since the device plugin started (Allocate failed due to rpc error:",
            (
                "Delete the pod of the device plugin on the node, which looks at the GPUs anew, and look for Xid "
                "errors in the node's kernel log. With ready_gate in its group such a node takes no further pods "
                "until then."
            ),
        ),
    ),
}


def page_rows() -> list[str]:
    """The rows of the table in docs/faults.md: run this file to see them."""
    told = [(fault.title, plain(fault.sentence), "node") for fault in NODES.values()]
    told += [(words.title, words.sentence, "cluster") for words in CLUSTER.values()]
    return [f"| {title} | {where} | {text.replace('|', chr(92) + '|')} |" for title, text, where in told]


if __name__ == "__main__":
    sys.stdout.write("\n".join(page_rows()) + "\n")
