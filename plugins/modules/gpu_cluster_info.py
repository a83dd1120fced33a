#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_cluster_info
short_description: Tell how far each GPU node of a cluster has come, and what failed first
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Reads nodes, pods and events, and tells of each GPU node which stage it has reached, the first thing that failed
    and why, and what it offers beside what its hardware has.
  - Changes nothing. Works as well for a cluster that the GPU Operator runs.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  namespace:
    description: Namespace of the operands.
    type: str
    default: gpu-operator
  query:
    description:
      - JMESPath expression over RV(found), such as V(nodes[?!ready].name). Its result is returned as RV(result).
      - Needs the Python package C(jmespath) where the module runs.
    type: str
  owners:
    description: Whether to tell who set the GPU labels, annotations and taints of nodes, and when, as
      RV(found.owners).
    type: bool
    default: false
  show_table:
    description: Whether the table of nodes is shown on the terminal, too.
    type: bool
    default: false
  progress_file:
    description: File to which the table is written. The action plugin sets it and shows it; do not set it.
    type: path
seealso:
  - module: gpufleet.nvidia.cluster_policy
"""

EXAMPLES = r"""
- name: Nodes whose GPUs cannot be used, and why
  gpufleet.nvidia.gpu_cluster_info:
    query: "nodes[?!ready].{name: name, stage: stage, trouble: trouble}"
  register: gpus

- name: Show them
  ansible.builtin.debug:
    var: gpus.result
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
found:
  description: The cluster's GPUs.
  returned: always
  type: dict
  contains:
    manager:
      description: Who runs the stack, one of V(gpufleet), V(operator) and V(none).
      returned: success
      type: str
    namespace:
      description: Namespace of the operands.
      returned: success
      type: str
    kubernetes:
      description: Version of the API server.
      returned: success
      type: str
    table:
      description: The nodes as lines of a table for people.
      returned: success
      type: list
      elements: str
    nodes:
      description: GPU nodes, sorted by name.
      returned: success
      type: list
      elements: dict
      contains:
        name:
          description: Name of the node.
          returned: always
          type: str
        product:
          description: Product of the GPUs as feature discovery names it, of one where there are several. Empty until it
            has run.
          returned: always
          type: str
        models:
          description: How many GPUs of each model are on the PCI bus, from Node Feature Discovery. Empty where that
            does not tell, or may not be read.
          returned: always
          type: dict
          sample: {"A10": 1, "Tesla T4": 2}
        workload:
          description: What its operands give its GPUs to, V(container), V(vm-passthrough) or V(vm-vgpu). Empty while it
            has none.
          returned: always
          type: str
        gpus:
          description: GPUs that the hardware has, or -1 while nothing on the node has counted them.
          returned: always
          type: int
        driver:
          description: Version of the loaded driver. Empty while there is none.
          returned: always
          type: str
        mig:
          description: Name of the MIG configuration and its state, such as V(all-1g.10gb (success)). Empty where the
            GPUs have no MIG.
          returned: always
          type: str
        allocatable:
          description: GPU resources that the node offers, by name.
          returned: always
          type: dict
          sample: {"nvidia.com/gpu": 8}
        units:
          description: How many GPUs, slices or shares of GPUs pods can use on the node, the sum of C(allocatable). The
            label C(nvidia.com/gpu.count) does not tell that, it counts cards (slices with the MIG strategy single).
          returned: always
          type: int
        stage:
          description: Stage that the node has reached, such as V(driver), V(toolkit), V(device plugin) or V(ready).
          returned: always
          type: str
        ready:
          description: Whether pods can use the node's GPUs.
          returned: always
          type: bool
        failed:
          description: Whether something on the node is broken, rather than slow or left out on purpose.
          returned: always
          type: bool
        trouble:
          description: The first thing that is not in order, in one sentence with layer, cause and what to do next.
            Empty when all is.
          returned: always
          type: str
        os:
          description: Operating system and version, such as V(ubuntu24.04).
          returned: always
          type: str
        kernel:
          description: Kernel release.
          returned: always
          type: str
        runtime:
          description: Container runtime and version.
          returned: always
          type: str
    status:
      description: The state of the stack, as the GPU Operator tells it of a ClusterPolicy.
      returned: success
      type: dict
      contains:
        state:
          description: V(ready) or V(notReady).
          returned: always
          type: str
        conditions:
          description: The conditions V(Ready) and V(Error), of which one is true.
          returned: always
          type: list
          elements: dict
          contains:
            type:
              description: V(Ready) or V(Error).
              returned: always
              type: str
            status:
              description: V(True) or V(False).
              returned: always
              type: str
            reason:
              description: Of the one that is true, V(Reconciled), V(NFDLabelsMissing) (no node has labels of NFD),
                V(NoGPUNodes), V(OperandNotReady) or V(ReconcileFailed).
              returned: always
              type: str
            message:
              description: Operands that are not ready and nodes with what is wrong on them, or the error.
              returned: always
              type: str
    policies:
      description: Objects of the GPU Operator that describe the stack, where the cluster has such kinds.
      returned: success
      type: list
      elements: dict
      contains:
        kind:
          description: V(ClusterPolicy), V(GPUCluster) or V(NVIDIADriver).
          returned: always
          type: str
        name:
          description: Its name.
          returned: always
          type: str
        counts:
          description: V(active), V(ignored) for a ClusterPolicy beside an older one, V(disabled) for an NVIDIADriver
            that the ClusterPolicy does not use, V(conflict) where objects contradict each other.
          returned: always
          type: str
        state:
          description: State by its own status. Empty where it has none.
          returned: always
          type: str
        reason:
          description: Reason of the condition that is true. Empty where it has none.
          returned: always
          type: str
        message:
          description: Its message.
          returned: always
          type: str
    owners:
      description: Who set what on nodes, by node and key, as the API server has written it down.
      returned: with O(owners)
      type: list
      elements: dict
      contains:
        node:
          description: Name of the node.
          returned: always
          type: str
        kind:
          description: V(label), V(annotation) or V(taints). Taints are one list with one owner.
          returned: always
          type: str
        key:
          description: Key of the label or annotation. Empty for taints.
          returned: always
          type: str
        manager:
          description: Name by which the writer called itself, such as V(kubectl-taint), V(kubeadm) or V(gpufleet).
          returned: always
          type: str
        operation:
          description: V(Apply) or V(Update).
          returned: always
          type: str
        time:
          description: When it was last written, UTC.
          returned: always
          type: str
    runs:
      description: The last runs that wrote to the cluster, newest first. They are kept on the Lease C(gpufleet).
      returned: success
      type: list
      elements: dict
      contains:
        start:
          description: When the run took the Lease, UTC.
          returned: always
          type: str
        end:
          description: When it ended. Empty for a run that was killed.
          returned: always
          type: str
        by:
          description: User name by which the API server knew the run.
          returned: when it ended by itself
          type: str
        from:
          description: Local user, host and process of the run.
          returned: always
          type: str
        what:
          description: What was run, such as V(stack), V(removal) or V(nodes).
          returned: when it ended by itself
          type: str
        policy:
          description: SHA-256 of the complete policy. Empty where none was asked for.
          returned: when it ended by itself
          type: str
        changes:
          description: Number of changes that were made.
          returned: when it ended by itself
          type: int
        changed:
          description: Names of the changes, 20 at most.
          returned: when it ended by itself
          type: list
          elements: str
        ended:
          description: V(done), V(failed) with the message, V(interrupted), or V(killed).
          returned: always
          type: str
    requests:
      description: Requests that this run sent to the API server.
      returned: success
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
result:
  description: What the expression in O(query) selects.
  returned: when O(query) is given
  type: raw
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._info import gpu_cluster_info


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            namespace={"type": "str", "default": "gpu-operator"},
            query={"type": "str"},
            owners={"type": "bool", "default": False},
            show_table={"type": "bool", "default": False},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, gpu_cluster_info)


if __name__ == "__main__":
    main()
