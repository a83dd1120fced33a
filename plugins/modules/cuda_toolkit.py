#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit
short_description: Install the CUDA toolkit of one minor version on a host
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Installs the packages of one CUDA minor from the host's repositories, such as NVIDIA's that the driver comes from.
  - A CUDA that the loaded driver cannot run is refused, with the row of the version matrix that says so.
  - Only packages are used that bring no driver of their own.
  - With O(state=absent), packages that came with this module go, and what C(/usr/local/cuda) led to comes back.
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Packages have no diff; what changes is in RV(plan).
    support: none
options:
  state:
    description: Whether the toolkit is there, or everything is as it was found.
    type: str
    choices: [present, absent]
    default: present
  version:
    description: CUDA minor, such as V(13.0), as a text. Required with O(state=present).
    type: str
  profile:
    description:
      - What of it. V(toolkit) is compiler, libraries and tools; V(minimal) is the compiler and what it needs;
        V(libraries) is what programs need that were built elsewhere.
    type: str
    choices: [toolkit, minimal, libraries]
    default: toolkit
  package_version:
    description: Version of the package, such as V(13.0.2-1), or V(latest). What is installed stays by default, else
      the newest is taken.
    type: str
  default:
    description: Whether C(/usr/local/cuda) leads to it. Otherwise it leads where it led before.
    type: bool
    default: true
  hold:
    description: Whether the package is held at its version.
    type: bool
    default: true
  package_manager:
    description: Package manager of the host.
    type: str
    choices: [auto, apt, dnf, zypper]
    default: auto
  accept:
    description: Findings that do not stop the run, by id. V(cuda_unknown) accepts a CUDA that the matrix does not
      know, V(held) packages that somebody else holds. Other words are refused.
    type: list
    elements: str
    default: []
seealso:
  - module: gpufleet.nvidia.gpu_info
"""

EXAMPLES = r"""
- name: CUDA 13.0 to build with, beside any other that is there
  gpufleet.nvidia.cuda_toolkit:
    version: "13.0"
    default: false
  become: true
"""

RETURN = r"""
findings:
  description: What a person should know of the input or the host, all problems at once.
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
      description: What it is about. Empty for the input itself.
      returned: always
      type: str
    path:
      description: Dotted path of the key that it is about, such as V(version).
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
      description: One of V(install), V(upgrade), V(downgrade), V(remove), V(hold), V(unhold), V(update), V(restore),
        V(forget).
      returned: always
      type: str
    target:
      description: Package or link.
      returned: always
      type: str
    reason:
      description: Why, in one sentence.
      returned: always
      type: str
    disruptive:
      description: Whether anything is interrupted by it.
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
  description: What was found on the host.
  returned: always
  type: dict
  contains:
    driver:
      description: Version of the loaded driver. Empty without one.
      returned: success
      type: str
    cuda:
      description: Major version of CUDA that the driver runs. 0 where nobody tells.
      returned: success
      type: int
    default:
      description: Where C(/usr/local/cuda) led before the run. Empty where no package has set it.
      returned: success
      type: str
verified:
  description: Proofs of the end state, by the package manager and the compiler itself. Empty in check mode.
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._cuda._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "version": {"type": "str"},
            "profile": {"type": "str", "choices": ["toolkit", "minimal", "libraries"], "default": "toolkit"},
            "package_version": {"type": "str"},
            "default": {"type": "bool", "default": True},
            "hold": {"type": "bool", "default": True},
            "package_manager": {"type": "str", "choices": ["auto", "apt", "dnf", "zypper"], "default": "auto"},
            "accept": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "present", ["version"])],
        supports_check_mode=True,
    )
    run_module(module)


if __name__ == "__main__":
    main()
