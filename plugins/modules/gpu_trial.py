#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_trial
short_description: Prove by a CUDA pod that GPUs can be used
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - For each kind of GPU resource on each product (whole GPUs, shared ones, MIG profiles) runs one pod on a ready node
    that has one free. The pod takes one through the device plugin, as any pod would, and runs C(nvidia-smi) and a CUDA
    program.
  - Asks the metrics endpoint of the DCGM exporter on these nodes, through the API server, whether it tells of every
    GPU.
  - Deletes its pods whatever happens, and those that an interrupted trial left once their time is over. Those of a
    trial beside it stay. Where nothing is free it says so and runs no pod there.
  - The account needs the rights to create, list, watch and delete pods in O(namespace), to read pods of all namespaces,
    and to get C(pods/proxy) for the metrics.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
attributes:
  check_mode:
    description: Runs no pod. The plan tells which pods it would run, and metrics are asked for.
    support: full
  diff_mode:
    description: What is made is gone at the end.
    support: none
options:
  namespace:
    description: Namespace of the operands, in which the pods run.
    type: str
    default: gpu-operator
  image:
    description: Image with C(sh) and C(vectorAdd). By default that of the validator in O(namespace).
    type: str
  time_limit:
    description: Seconds that all pods together may take, the pull of their image included.
    type: int
    default: 300
  metrics:
    description: Whether the metrics endpoint is asked.
    type: bool
    default: true
  progress_file:
    description: File to which progress is written. The action plugin sets it and shows it; do not set it.
    type: path
seealso:
  - module: gpufleet.nvidia.gpu_cluster_info
"""

EXAMPLES = r"""
- name: Can the GPUs be used
  gpufleet.nvidia.gpu_trial:

- name: The same where the API server reaches no pod
  gpufleet.nvidia.gpu_trial:
    metrics: false
    time_limit: 600
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
      description: One of V(create), V(update), V(delete).
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
      description: Whether something is taken away by it.
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
  description: What was tried.
  returned: always
  type: dict
  contains:
    trials:
      description: One for each pod that was run.
      returned: success
      type: list
      elements: dict
      contains:
        node:
          description: Node on which it ran.
          returned: always
          type: str
        product:
          description: Product of the node's GPUs.
          returned: always
          type: str
        resource:
          description: Resource of which it took one.
          returned: always
          type: str
          sample: nvidia.com/gpu
        ok:
          description: Whether it succeeded.
          returned: always
          type: bool
        detail:
          description: Why it did not.
          returned: always
          type: str
    metrics:
      description: One for each exporter that was asked.
      returned: success
      type: list
      elements: dict
      contains:
        node:
          description: Node of the exporter.
          returned: always
          type: str
        ok:
          description: Whether it tells of every GPU.
          returned: always
          type: bool
        detail:
          description: What is wrong with it.
          returned: always
          type: str
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._trial_run import gpu_trial
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            namespace={"type": "str", "default": "gpu-operator"},
            image={"type": "str"},
            time_limit={"type": "int", "default": 300},
            metrics={"type": "bool", "default": True},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, gpu_trial)


if __name__ == "__main__":
    main()
