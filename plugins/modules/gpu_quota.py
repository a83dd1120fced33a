#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_quota
short_description: Limit the GPUs, slices and MIG devices that the pods of a namespace may ask for
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Keeps one ResourceQuota of a namespace. Quotas that others made are left alone, and named when they count GPUs too.
  - The end state is proved by the count of the quota controller, by which the API server admits pods.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Shows the quota before and after.
    support: full
options:
  state:
    description: V(present) makes the quota what O(hard) says, V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  namespace:
    description: Namespace whose pods are counted. It has to exist.
    type: str
    required: true
  name:
    description: Name of the ResourceQuota.
    type: str
    default: gpufleet-gpus
  hard:
    description:
      - How many of each resource, with keys such as V(gpu), V(gpu.shared) and V(mig-1g.10gb). Full names such as
        V(nvidia.com/gpu) and V(requests.nvidia.com/gpu) are the same.
      - Kubernetes counts GPUs by C(requests.) keys only, so C(limits.) keys are refused.
      - A resource that is not named is not limited. V(0) forbids it.
    type: dict
  timeout:
    description: Seconds that the whole run may take.
    type: int
    default: 300
seealso:
  - module: gpufleet.nvidia.gpu_explain
"""

EXAMPLES = r"""
- name: Four GPUs and two small MIG devices for the team
  gpufleet.nvidia.gpu_quota:
    namespace: team-a
    hard:
      gpu: 4
      mig-1g.10gb: 2

- name: No limit any more
  gpufleet.nvidia.gpu_quota:
    namespace: team-a
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
  description: What was found in the cluster.
  returned: always
  type: dict
  contains:
    name:
      description: Name of the quota.
      returned: success
      type: str
    namespace:
      description: Namespace of the quota.
      returned: success
      type: str
    hard:
      description: What the quota allows, by the keys that Kubernetes knows. Empty with O(state=absent).
      returned: success
      type: dict
      sample: {"requests.nvidia.com/gpu": "4"}
    used:
      description: What pods of the namespace hold of it.
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
  description: Proofs of the end state, read from the quota controller's count. Empty in check mode.
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
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._quota import gpu_quota
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            namespace={"type": "str", "required": True},
            name={"type": "str", "default": "gpufleet-gpus"},
            hard={"type": "dict"},
            timeout={"type": "int", "default": 300},
        ),
        supports_check_mode=True,
    )
    run_module(module, gpu_quota)


if __name__ == "__main__":
    main()
