#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_policy
short_description: Bring the whole GPU stack of a cluster to what a policy says
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Makes, changes and removes everything that a Kubernetes cluster needs to offer NVIDIA GPUs, from the values of the
    GPU Operator's Helm chart or from a C(ClusterPolicy). That is namespace, Node Feature Discovery, runtime classes,
    node labels, driver, container toolkit, device plugin, feature discovery, DCGM exporter, MIG manager and validation,
    and on nodes whose GPUs are for virtual machines (C(sandboxWorkloads)) VFIO or vGPU manager and their device plugin.
  - Reads and plans first. All problems of the input are reported at once, and nothing is written before the whole
    plan stands.
  - Waits stage by stage and proves the end state on the nodes, by their allocatable resources.
  - Writes nothing when nothing differs.
  - Refuses a cluster in which the GPU Operator's own controller runs.
  - Does not move a node between containers and virtual machines while pods hold its GPUs.
  - OpenShift and Dynamic Resource Allocation are not supported yet. A policy that asks for them is refused.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.policy
  - gpufleet.nvidia.cluster.wait
  - gpufleet.nvidia.cluster.drift
  - gpufleet.nvidia.cluster.node_groups
attributes:
  check_mode:
    description: Plans and writes nothing. Dry runs are sent where the account may patch, so that refusals by
      admission show in the plan.
    support: full
  diff_mode:
    description: Shows what differs of each object.
    support: full
options:
  state:
    description:
      - V(present) makes the stack what the policy says.
      - V(absent) removes all that the collection made and gives back the labels, annotations and taints of nodes that
        it changed.
    type: str
    choices: [present, absent]
    default: present
  max_failed_nodes:
    description:
      - How many GPU nodes may be broken at the end without the run failing, a number such as V(2) or a part of all GPU
        nodes such as V(10%), rounded down.
      - Broken nodes never hold up the others. They are reported with layer, cause and what to do next as warnings and
        findings, and in RV(found.nodes), whatever this option says.
      - A node that is only slow is waited for until O(stage_timeout), and counts as broken after that.
    type: str
    default: "0"
    version_added: "0.2.0"
  all_namespaces:
    description:
      - Whether to look for objects of the collection in all namespaces, so that those of an earlier namespace are
        found.
      - V(false) looks in O(namespace) only, for accounts that may not list in others.
    type: bool
    default: true
  watch:
    description:
      - Seconds for which the run goes on after its end, to watch the nodes and to run again as soon as one needs
        something, such as a node that joins.
      - Made for scheduled runs, to serve new nodes between two of them. Has no effect in check mode.
    type: int
    default: 0
seealso:
  - module: gpufleet.nvidia.gpu_cluster_info
  - module: gpufleet.nvidia.gpu_nodes
"""

EXAMPLES = r"""
- name: The whole stack with the chart's defaults
  gpufleet.nvidia.cluster_policy:
    kubeconfig: ~/.kube/config

- name: From a values file of the GPU Operator's chart
  gpufleet.nvidia.cluster_policy:
    policy_files:
      - values.yaml
    set_values:
      - driver.version=595.91.07

- name: A cloud whose nodes bring driver and toolkit
  gpufleet.nvidia.cluster_policy:
    policy:
      driver:
        enabled: false
      toolkit:
        enabled: false

- name: A large fleet, in which some nodes are always out of order
  gpufleet.nvidia.cluster_policy:
    max_failed_nodes: 5%

- name: Remove the stack
  gpufleet.nvidia.cluster_policy:
    state: absent
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
      description: One of V(create), V(update), V(replace), V(delete), V(label).
      returned: always
      type: str
    target:
      description: Kind, namespace and name of the object.
      returned: always
      type: str
    reason:
      description: Why, in one sentence.
      returned: always
      type: str
    disruptive:
      description: Whether pods are stopped by it.
      returned: always
      type: bool
    before:
      description: What is there of that which differs. Secrets are left out.
      returned: always
      type: raw
    after:
      description: What will be there. Secrets are left out.
      returned: always
      type: raw
found:
  description: What was found in the cluster, and what the policy stands for.
  returned: always
  type: dict
  contains:
    namespace:
      description: Namespace of the operands.
      returned: success
      type: str
    release:
      description: Release of the GPU Operator whose versions are the defaults.
      returned: success
      type: str
    policy_hash:
      description: SHA-256 of the complete policy. Empty with O(state=absent).
      returned: success
      type: str
    status:
      description: The state of the stack, as the GPU Operator tells it of a ClusterPolicy.
      returned: with O(state=present)
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
    stages:
      description: Operands in the order in which they come up on a node.
      returned: success
      type: list
      elements: dict
      contains:
        name:
          description: Name of the stage, such as V(state-driver).
          returned: always
          type: str
        title:
          description: What a person calls it.
          returned: always
          type: str
        state:
          description: One of V(ready), V(waiting), V(off) and V(no nodes).
          returned: always
          type: str
        workloads:
          description: Its DaemonSets and Deployments.
          returned: always
          type: list
          elements: str
        desired:
          description: Pods that should run.
          returned: always
          type: int
        ready:
          description: Pods that are ready.
          returned: always
          type: int
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
          description: How many GPUs of each model are on the PCI bus, from Node Feature Discovery. Empty where that was
            not looked at, since a run reads this long list only when something changes or a node is not as expected.
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
    offers:
      description: What each node will offer, computed before anything is applied. The same in check mode. After a run
        the nodes must show it.
      returned: when the device plugin is wanted
      type: list
      elements: dict
      contains:
        name:
          description: Name of the node.
          returned: always
          type: str
        resources:
          description: Resources by name. Empty while they cannot be told.
          returned: always
          type: dict
          sample: {"nvidia.com/gpu.shared": 8}
        known:
          description: Whether they could be computed.
          returned: always
          type: bool
        detail:
          description: Why they cannot be told or cannot be, or what is not as one might think.
          returned: always
          type: str
        strategy:
          description: MIG strategy.
          returned: always
          type: str
        config:
          description: Configuration of the device plugin that the node uses. Empty where there is none.
          returned: always
          type: str
        mig:
          description: MIG configuration of the node. Empty where its GPUs have no MIG.
          returned: always
          type: str
        sharing:
          description: One of V(none), V(time-slicing) and V(mps).
          returned: always
          type: str
        one_a_container:
          description: Whether a container that asks for two or more of a shared resource is turned away.
          returned: always
          type: bool
        shares:
          description: Percent of a GPU for each pod, by shared resource. With MPS a limit of memory and threads, with
            time-slicing a part of the time.
          returned: always
          type: dict
          sample: {"nvidia.com/gpu": 25}
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
verified:
  description: Proofs of the end state, read from the nodes and not from the objects that were written. Empty in check
    mode.
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import (
    CONNECTION,
    DRIFT,
    NODE_GROUPS,
    POLICY,
    WAIT,
    spec,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._stack import cluster_policy


def main():
    state = {"type": "str", "choices": ["present", "absent"], "default": "present"}
    budget = {"type": "str", "default": "0"}
    watch = {"type": "int", "default": 0}
    everywhere = {"type": "bool", "default": True}
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            POLICY,
            WAIT,
            DRIFT,
            NODE_GROUPS,
            state=state,
            max_failed_nodes=budget,
            all_namespaces=everywhere,
            watch=watch,
        ),
        supports_check_mode=True,
    )
    run_module(module, cluster_policy)


if __name__ == "__main__":
    main()
