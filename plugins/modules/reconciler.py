#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: reconciler
short_description: Reconcile a cluster from inside, on a schedule
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Installs a CronJob that runs the playbook C(gpufleet.nvidia.reconcile) inside the cluster, with the policy in a
    ConfigMap and an account that may do what a run needs and nothing else.
  - The account reads no secrets of other namespaces, and cannot give itself more rights. It has neither of the verbs
    C(escalate) and C(bind).
  - Two runs never overlap. The one in the cluster leaves a cluster on which somebody works alone until its next turn.
  - Between two turns it watches the nodes, so that a node which joins is served at once.
  - Install it after a first run of C(gpufleet.nvidia.site), which makes the namespace and proves the policy.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.policy
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
    description: Whether the reconciler is installed or removed with all that belongs to it. What it has set up in the
      cluster stays.
    type: str
    choices: [present, absent]
    default: present
  image:
    description:
      - Image in which a run happens. It holds ansible-core, this collection and its Python packages, such as one that
        C(ansible-builder) makes from the collection's execution environment.
      - Needed with O(state=present).
    type: str
  schedule:
    description: When it runs, in the five fields of cron, UTC.
    type: str
    default: "*/10 * * * *"
  watch:
    description: Seconds for which a run goes on to watch the nodes after its end. Keep it below the time between two
      runs.
    type: int
    default: 480
  max_failed_nodes:
    description: Broken nodes that a run may end with, a number or a part such as V(5%), as in
      M(gpufleet.nvidia.cluster_policy).
    type: str
    default: "0"
  stage_timeout:
    description: Seconds that one stage of a run may take.
    type: int
    default: 1800
  timeout:
    description: Seconds that a whole run may take.
    type: int
    default: 7200
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
  suspend:
    description: Whether the schedule rests, for a time in which the cluster is to be left alone.
    type: bool
    default: false
  own_namespace:
    description: Namespace of the reconciler. Not that of the operands, whose pods are privileged.
    type: str
    default: gpufleet
  image_pull_secrets:
    description: Names of Secrets in O(own_namespace) for the registry of O(image).
    type: list
    elements: str
  node_selector:
    description: Labels of the nodes on which it may run.
    type: dict
  tolerations:
    description: Tolerations of its pods.
    type: list
    elements: dict
  resources:
    description: Resources of its container. 100m CPU and 256Mi of memory are requested by default.
    type: dict
seealso:
  - module: gpufleet.nvidia.cluster_policy
"""

EXAMPLES = r"""
- name: Reconcile every ten minutes
  gpufleet.nvidia.reconciler:
    image: registry.example.com/gpufleet-ee:1.0
    policy_files:
      - values.yaml

- name: Leave the cluster alone for a while
  gpufleet.nvidia.reconciler:
    image: registry.example.com/gpufleet-ee:1.0
    policy_files:
      - values.yaml
    suspend: true

- name: No longer
  gpufleet.nvidia.reconciler:
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
  description: What was found in the cluster.
  returned: always
  type: dict
  contains:
    namespace:
      description: Namespace of the reconciler.
      returned: success
      type: str
    name:
      description: Name of its CronJob and of its account.
      returned: success
      type: str
    installed:
      description: Whether it is installed now. In check mode, whether it was before.
      returned: success
      type: bool
    policy_hash:
      description: SHA-256 of the complete policy.
      returned: with O(state=present)
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
    spec,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._run import reconciler
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            POLICY,
            DRIFT,
            NODE_GROUPS,
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            image={"type": "str"},
            schedule={"type": "str", "default": "*/10 * * * *"},
            watch={"type": "int", "default": 480},
            max_failed_nodes={"type": "str", "default": "0"},
            stage_timeout={"type": "int", "default": 1800},
            timeout={"type": "int", "default": 7200},
            progress_file={"type": "path"},
            suspend={"type": "bool", "default": False},
            own_namespace={"type": "str", "default": "gpufleet"},
            image_pull_secrets={"type": "list", "elements": "str", "no_log": False},
            node_selector={"type": "dict"},
            tolerations={"type": "list", "elements": "dict"},
            resources={"type": "dict"},
        ),
        supports_check_mode=True,
    )
    run_module(module, reconciler)


if __name__ == "__main__":
    main()
