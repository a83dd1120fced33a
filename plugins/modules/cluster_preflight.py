#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_preflight
short_description: Tell what stands in the way of a policy in a cluster, before anything is written
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Looks at the cluster once and judges it. Kubernetes version, rights of the account, pod security, quotas, Node
    Feature Discovery and its leftovers, container runtimes, kernels and driver images, nouveau and NVSwitches,
    versions that do not fit together, admission webhooks, controllers and device plugins of others, GPU workloads
    without limits or tolerations.
  - Every finding comes with its severity and a remedy, in one table. The module fails when one of them is an error.
  - Changes nothing. Admission is asked by dry runs of the operands' pods, rights by access reviews.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.policy
  - gpufleet.nvidia.cluster.node_groups
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  show_table:
    description: Whether the table is shown on the terminal, too.
    type: bool
    default: false
  progress_file:
    description: File to which the table is written. The action plugin sets it and shows it; do not set it.
    type: path
seealso:
  - module: gpufleet.nvidia.cluster_policy
"""

EXAMPLES = r"""
- name: Whether this cluster is ready for the stack
  gpufleet.nvidia.cluster_preflight:
    policy_files:
      - values.yaml
    show_table: true
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
  description: What was looked at.
  returned: always
  type: dict
  contains:
    kubernetes:
      description: Version of the API server.
      returned: success
      type: str
    namespace:
      description: Namespace of the operands.
      returned: success
      type: str
    gpu_nodes:
      description: Names of nodes on which Node Feature Discovery has found a GPU.
      returned: success
      type: list
      elements: str
    checks:
      description: Every check, in the order of the table.
      returned: success
      type: list
      elements: dict
      contains:
        name:
          description: Name of the check.
          returned: always
          type: str
        result:
          description: The worst of its findings, one of V(error), V(warning), V(info), or V(ok).
          returned: always
          type: str
        findings:
          description: Number of its findings.
          returned: always
          type: int
    table:
      description: The findings as lines of a table for people.
      returned: success
      type: list
      elements: str
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
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, NODE_GROUPS, POLICY, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._preflight import cluster_preflight
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            POLICY,
            NODE_GROUPS,
            show_table={"type": "bool", "default": False},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, cluster_preflight)


if __name__ == "__main__":
    main()
