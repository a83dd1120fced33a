#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_node
short_description: Take a cluster's node out of the way while its host gets a MIG layout
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - For hosts that M(gpufleet.nvidia.mig_partition) partitions, and that are nodes of a cluster. It does there what
    the MIG manager does around a change, with the account of the caller. C(playbooks/repartition.yml) uses it.
  - With O(state=paused) the node is cordoned, and the deploy labels of its GPU clients (device plugin, feature
    discovery, DCGM and its exporter, and DaemonSets with the node selector C(nvidia.com/gpu.deploy.client)) are
    paused, until no pod holds a GPU. When that fails, or takes too long, labels and cordon are given back; pods that
    were evicted stay so.
  - With O(state=resumed) labels and cordon are as they were. An admin's own cordon stays.
  - How it ended is written to C(nvidia.com/mig.config.state), as the MIG manager writes it, and the reason of a failure
    to the annotation C(gpufleet.io/mig-problem).
  - A node that the MIG manager looks after is refused, and O(state=resumed) writes nothing on it unless it is paused.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Shows labels, annotations and cordon before and after.
    support: full
options:
  node:
    description: Name of the node.
    type: str
    required: true
  state:
    description: Whether the node is out of the way, or back.
    type: str
    choices: [paused, resumed]
    required: true
  outcome:
    description:
      - What is written to C(nvidia.com/mig.config.state).
      - V(pending) (unless given) or V(rebooting) with O(state=paused), V(success) (unless given) or V(failed) with
        O(state=resumed).
    type: str
    choices: [pending, rebooting, success, failed]
  problem:
    description: Why the host did not get its layout, for O(outcome=failed).
    type: str
  user_pods:
    description:
      - What to do when users' pods hold GPUs of the node.
      - V(evict) respects disruption budgets and grace periods. Pods that nobody makes anew, and those of DaemonSets,
        are refused instead. What is in C(emptyDir) volumes is lost.
    type: str
    choices: [refuse, wait, evict]
    default: refuse
  user_pods_timeout:
    description: Seconds to wait until they are gone. The node is given back then.
    type: int
    default: 600
  namespace:
    description: Namespace of the operands. Their pods do not count as users of a GPU.
    type: str
    default: gpu-operator
  wait:
    description: Whether O(state=resumed) waits until the kubelet offers what the host has now.
    type: bool
    default: true
  stage_timeout:
    description: Seconds that GPU clients may take to go, and to come back.
    type: int
    default: 300
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
seealso:
  - module: gpufleet.nvidia.mig_partition
  - module: gpufleet.nvidia.gpu_nodes
"""

EXAMPLES = r"""
- name: Nobody uses the GPUs of this node
  gpufleet.nvidia.mig_node:
    node: gpu-07
    state: paused
    user_pods: evict

- name: The node is back
  gpufleet.nvidia.mig_node:
    node: gpu-07
    state: resumed
"""

RETURN = r"""
findings:
  description: What a person should know of the input or the cluster, all problems at once.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the kind of finding. It stays the same between releases.
      returned: always
      type: str
    severity:
      description: One of V(error), V(warning), V(info). An error stops the run before anything is written.
      returned: always
      type: str
    target:
      description: Host, node or object that it is about. Empty for the input itself.
      returned: always
      type: str
    path:
      description: Dotted path of the key that it is about, such as V(driver.version).
      returned: always
      type: str
    detail:
      description: What was found, with the value and what is allowed.
      returned: always
      type: str
    remedy:
      description: What to do.
      returned: always
      type: str
    accept:
      description: Option that lets the run go on all the same. Empty when there is none.
      returned: always
      type: str
plan:
  description: What differs and what is done about it, in order. The same in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the action within this run.
      returned: always
      type: str
    verb:
      description: One of V(cordon), V(uncordon), V(label), V(unlabel), V(annotation), V(unannotation), V(evict),
        V(delete).
      returned: always
      type: str
    target:
      description: The node, or the pod.
      returned: always
      type: str
    reason:
      description: Why, in one sentence.
      returned: always
      type: str
    disruptive:
      description: Whether users notice it.
      returned: always
      type: bool
    before:
      description: The value now.
      returned: always
      type: raw
    after:
      description: The value afterwards.
      returned: always
      type: raw
found:
  description: What was found on the node.
  returned: always
  type: dict
  contains:
    node:
      description: Name of the node.
      returned: success
      type: str
    user_pods:
      description: Users' pods that held its GPUs, as namespace and name. Empty with O(state=resumed).
      returned: success
      type: list
      elements: str
    clients:
      description: Pods of GPU clients that were there still when the run ended. Empty when all are gone.
      returned: success
      type: list
      elements: str
    requests:
      description: Requests that this run sent to the API server.
      returned: always
      type: dict
      contains:
        total:
          description: All requests.
          returned: always
          type: int
        writes:
          description: Requests that changed something.
          returned: always
          type: int
verified:
  description: Proofs of the end state, by the pods that are there and by what the kubelet offers. Empty in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: What was proved.
      returned: always
      type: str
    ok:
      description: Whether it holds.
      returned: always
      type: bool
    detail:
      description: What was seen.
      returned: always
      type: str
done:
  description: Actions that were carried out before the failure.
  returned: failure
  type: list
  elements: str
remaining:
  description: Actions that are left. A second run goes on from there.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._mig_node import mig_node


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            node={"type": "str", "required": True},
            state={"type": "str", "choices": ["paused", "resumed"], "required": True},
            outcome={"type": "str", "choices": ["pending", "rebooting", "success", "failed"]},
            problem={"type": "str"},
            user_pods={"type": "str", "choices": ["refuse", "wait", "evict"], "default": "refuse"},
            user_pods_timeout={"type": "int", "default": 600},
            namespace={"type": "str", "default": "gpu-operator"},
            wait={"type": "bool", "default": True},
            stage_timeout={"type": "int", "default": 300},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, mig_node)


if __name__ == "__main__":
    main()
