#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_nodes
short_description: Label, taint and partition GPU nodes by groups
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Gives the nodes of each group their labels, their taint, their MIG configuration and their device plugin
    configuration, and nothing else.
  - What a node had before is remembered on the node, and O(state=absent) gives it back.
  - Never writes C(nvidia.com/mig.config) on a node where a user's pod holds a GPU, since the MIG manager would fail
    half-way. Such a node is refused before anything is
    written, or waited for with O(mig_busy=wait).
  - Follows the MIG manager's state label until each node has succeeded or failed.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.node_groups
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Shows labels, annotations and taints before and after.
    support: full
options:
  state:
    description: Whether the groups' settings are made, or given back.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description: Namespace of the operands. Their pods do not count as users of a GPU.
    type: str
    default: gpu-operator
  mig_busy:
    description: What to do when a user's pod holds a GPU of a node whose MIG configuration is to change.
    type: str
    choices: [refuse, wait]
    default: refuse
  mig_busy_timeout:
    description: Seconds to wait with O(mig_busy=wait) until the GPUs are free. Nothing is written on a node that is
      still busy then.
    type: int
    default: 600
  wait:
    description: Whether to wait until the MIG manager has applied a changed configuration.
    type: bool
    default: true
  stage_timeout:
    description: Seconds that the MIG manager may take.
    type: int
    default: 1800
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
seealso:
  - module: gpufleet.nvidia.cluster_policy
  - module: gpufleet.nvidia.device_plugin
"""

EXAMPLES = r"""
- name: Training nodes whole, inference nodes in slices, both kept for GPU work
  gpufleet.nvidia.gpu_nodes:
    node_groups:
      - name: training
        selector: pool=training
        taint: true
      - name: inference
        selector: pool=inference
        taint: true
        mig: all-1g.10gb
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
  description: What was found in the cluster.
  returned: always
  type: dict
  contains:
    groups:
      description: Names of the nodes of each group, by the group's name.
      returned: success
      type: dict
    busy:
      description: Pods that hold GPUs, by node. Only nodes whose MIG configuration is to change are looked at.
      returned: success
      type: dict
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, NODE_GROUPS, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._gpu_nodes import gpu_nodes


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            NODE_GROUPS,
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            namespace={"type": "str", "default": "gpu-operator"},
            mig_busy={"type": "str", "choices": ["refuse", "wait"], "default": "refuse"},
            mig_busy_timeout={"type": "int", "default": 600},
            wait={"type": "bool", "default": True},
            stage_timeout={"type": "int", "default": 1800},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, gpu_nodes)


if __name__ == "__main__":
    main()
