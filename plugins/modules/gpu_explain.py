#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_explain
short_description: Say in one sentence why a pod does not run
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Says why a pod is pending, or why a workload gets no pods at all. A taint, a missing limit, nodeSelector or affinity
    to a label that no node has, a GPU resource that no node offers, a quota, no room, a missing runtime class, a node
    that is not ready, or whatever the scheduler or the kubelet says.
  - Changes nothing.
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
  pod:
    description:
      - Namespace and name of a pod, such as V(ml/train-0), or a name in the namespace V(default).
      - The name of a Deployment, StatefulSet, DaemonSet, Job, CronJob or ReplicaSet stands for the pod of it that is
        worst off, or for the pods that never appeared.
    type: str
    required: true
  progress_file:
    description: File to which the sentence is written. The action plugin sets it and shows it; do not set it.
    type: path
seealso:
  - module: gpufleet.nvidia.gpu_cluster_info
"""

EXAMPLES = r"""
- name: Why does it not start
  gpufleet.nvidia.gpu_explain:
    pod: ml/train
  register: why

- name: Say it
  ansible.builtin.debug:
    msg: "{{ why.found.sentence }}"
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
  description: The explanation.
  returned: always
  type: dict
  contains:
    target:
      description: What was explained, such as V(Pod ml/train-0).
      returned: success
      type: str
    cause:
      description: Name of the cause, such as V(taint), V(quota), V(resource-name), V(no-capacity) or V(runs).
      returned: success
      type: str
    sentence:
      description: Cause and remedy for a person.
      returned: success
      type: str
    asked:
      description: GPU resources that one pod asks for, by name.
      returned: success
      type: dict
      sample: {"nvidia.com/gpu": 8}
    nodes:
      description: Every node, where the pod asks for GPU resources.
      returned: success
      type: list
      elements: dict
      contains:
        name:
          description: Name of the node.
          returned: always
          type: str
        allocatable:
          description: What it offers of the resources that are asked for.
          returned: always
          type: dict
        free:
          description: What of that no pod holds.
          returned: always
          type: dict
        obstacle:
          description: What keeps the pod from the node apart from room, such as a taint. Empty when nothing does.
          returned: always
          type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._explain_read import gpu_explain
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            pod={"type": "str", "required": True},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, gpu_explain)


if __name__ == "__main__":
    main()
