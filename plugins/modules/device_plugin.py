#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin
short_description: Manage the NVIDIA device plugin of a cluster alone
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Makes the device plugin, its MPS daemon and its named configurations what the policy says, and touches nothing
    else of the stack.
  - Named configurations are those of the device plugin (version v1, with C(flags), C(resources) and C(sharing)). A
    node chooses one with the label
    C(nvidia.com/device-plugin.config), which O(node_groups) sets.
  - The driver and the container toolkit must be there already, from M(gpufleet.nvidia.cluster_policy) or in the
    nodes' image.
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
    description: Whether the device plugin runs or is removed.
    type: str
    choices: [present, absent]
    default: present
  configs:
    description:
      - Named configurations of the plugin, by name. They go into the ConfigMap that the policy names in
        C(devicePlugin.config.name), C(device-plugin-configs) by default.
      - Merged over C(devicePlugin.config.data) of the policy.
    type: dict
  default_config:
    description: Name of the configuration for nodes that choose none. The policy's C(devicePlugin.config.default) by
      default.
    type: str
seealso:
  - module: gpufleet.nvidia.cluster_policy
  - module: gpufleet.nvidia.gpu_nodes
"""

EXAMPLES = r"""
- name: Four pods to a GPU on shared nodes, whole GPUs elsewhere
  gpufleet.nvidia.device_plugin:
    configs:
      whole:
        version: v1
      shared:
        version: v1
        sharing:
          timeSlicing:
            resources:
              - name: nvidia.com/gpu
                replicas: 4
    default_config: whole
    node_groups:
      - name: shared
        selector: pool=notebooks
        device_plugin: shared
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
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._parts import device_plugin


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            POLICY,
            WAIT,
            DRIFT,
            NODE_GROUPS,
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            configs={"type": "dict"},
            default_config={"type": "str"},
        ),
        supports_check_mode=True,
    )
    run_module(module, device_plugin)


if __name__ == "__main__":
    main()
