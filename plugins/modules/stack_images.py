#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_images
short_description: List every image that a policy needs
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Lists the images of all operands, of Node Feature Discovery, and of pods that operands start themselves, as a run
    with the same policy would write them. For mirrors of sites without internet.
  - Needs no cluster. What differs between operating systems and kernels is told by O(systems) and O(kernels).
  - Versions that are digests in the policy stay digests. Those of other images can be told by a registry only, which is
    not asked.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster.policy
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  systems:
    description: Operating systems of the GPU nodes with their versions, such as V(ubuntu24.04) or V(rhel9.6).
    type: list
    elements: str
    default: [ubuntu24.04]
  kernels:
    description: Kernel releases of the GPU nodes. Needed for precompiled drivers only.
    type: list
    elements: str
    default: []
  progress_file:
    description: File to which the images are written. The action plugin sets it and shows it; do not set it.
    type: path
seealso:
  - module: gpufleet.nvidia.cluster_policy
"""

EXAMPLES = r"""
- name: What a mirror has to hold
  gpufleet.nvidia.stack_images:
    policy_files:
      - values.yaml
    systems: [ubuntu24.04, rhel9.6]
  register: needed

- name: As a file
  ansible.builtin.copy:
    content: "{{ needed.found.images | map(attribute='image') | join('\n') }}\n"
    dest: images.txt
    mode: "0644"
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
  description: The images.
  returned: always
  type: dict
  contains:
    release:
      description: Release of the GPU Operator whose versions are the defaults.
      returned: success
      type: str
    images:
      description: Every image once, sorted.
      returned: success
      type: list
      elements: dict
      contains:
        image:
          description: The image, as it is pulled.
          returned: always
          type: str
        digest:
          description: Its digest, where the policy gives one. Empty otherwise.
          returned: always
          type: str
        used_by:
          description: Objects whose pods need it.
          returned: always
          type: list
          elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import POLICY, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._checks._images import stack_images
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec=spec(
            POLICY,
            systems={"type": "list", "elements": "str", "default": ["ubuntu24.04"]},
            kernels={"type": "list", "elements": "str", "default": []},
            progress_file={"type": "path"},
        ),
        supports_check_mode=True,
    )
    run_module(module, stack_images)


if __name__ == "__main__":
    main()
