#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_partition
short_description: Give GPUs of a host their MIG layout
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Gives each GPU the MIG instances that a layout asks for, through NVML and with the fewest instances destroyed.
  - Instances that can stay always stay, with their ids and UUIDs. Instances that programs hold are never destroyed.
  - Every GPU is planned before the first one is touched. What does not fit is refused with the reason.
  - A failed change is taken back. What is there afterwards is read again and compared.
  - Only GPUs that the layout names are looked after. Others are left alone.
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Shows the slices of each GPU before and after as one line of text.
    support: full
options:
  state:
    description:
      - With V(present) GPUs get the layout.
      - With V(absent) the layout is no longer given back at boot. GPUs stay as they are; switch MIG off with a layout
        that has C(enabled=false).
      - With V(exported) nothing is changed, and RV(found.config) has the layout that is there as a mig-parted file.
    type: str
    choices: [present, absent, exported]
    default: present
  layout:
    description:
      - What GPUs get, as a list of entries. A GPU that no entry matches is left alone.
      - C(gpus) is V(all), or a list of indexes, UUIDs and PCI addresses. C(product) is a part of the product's name,
        C(pci_ids) lists ids such as V(0x233010DE).
      - C(enabled) is whether MIG is on, V(true) unless given.
      - C(profiles) maps profiles to counts. Parts such as V(1c.2g.20gb) are packed into as few GPU instances as they
        need.
      - C(instances) lists instances, each with C(profile), and optionally C(count), C(start) (its memory slot) and
        C(compute) (the slices of its compute instances).
    type: list
    elements: dict
  config_file:
    description: A mig-parted file of version v1 on the controller, in YAML or JSON.
    type: path
  config:
    description: The content of such a file.
    type: dict
  name:
    description:
      - Label of the file to take. Without a file, name of a layout that this collection ships, such as
        V(all-balanced), V(all-1g.10gb) or V(all-disabled).
      - Where NVIDIA's MIG manager of the host keeps the label that it applies at boot
        (C(/etc/systemd/system/nvidia-mig-manager.service.d/override.conf)), it is written there too. A layout without a
        name warns.
    type: str
  hooks_file:
    description: A file of hooks on the controller as mig-parted has them, of version v1, in YAML or JSON. Their
      programs are run on the host, only when GPUs are changed, and not at boot.
    type: path
  hooks:
    description:
      - The content of such a file. C(apply-start), C(pre-apply-mode) (when a MIG mode changes) and
        C(pre-apply-config) are run before the first GPU is changed, and one that fails stops the run there.
        C(apply-exit) is run at the end, also of a run that failed after C(apply-start).
      - A program has no environment but C(envs) and, over them, C(MIG_PARTED_SELECTED_CONFIG) (O(name)),
        C(MIG_PARTED_SKIP_RESET), C(MIG_PARTED_MODE_CHANGE_ONLY), C(MIG_PARTED_CONFIG_FILE) and
        C(MIG_PARTED_HOOKS_FILE), the last two empty. It has 10 minutes.
    type: dict
  busy:
    description: What to do when programs hold instances that would have to go.
    type: str
    choices: [refuse, wait]
    default: refuse
  busy_timeout:
    description: Seconds to wait for them with O(busy=wait).
    type: int
    default: 600
  foreign:
    description:
      - What to do when instances would be destroyed, or changed inside, that no layout kept on this host
        (O(restore_at_boot)) has. They were made by hand or by another tool, or before this host kept a layout.
      - With V(replace) the finding C(mig.foreign) names them, in check mode too. With V(refuse) nothing is changed.
      - Those that a layout names stay, and are kept from then on.
    type: str
    choices: [replace, refuse]
    default: replace
  reset:
    description: Whether a GPU whose MIG mode needs a reset is reset. Only GPUs whose mode changes are. Without it they
      are listed in RV(found.reset_required).
    type: bool
    default: false
  services:
    description: Services that hold GPUs. Those that run are stopped before a change and started again after it. Nothing
      is stopped when there is nothing to change.
    type: list
    elements: str
    default:
      - nvsm.service
      - nvidia-dcgm.service
      - dcgm.service
      - dcgm-exporter.service
      - nvidia-dcgm-exporter.service
  refresh_cdi:
    description: Whether nvidia-cdi-refresh.service is restarted after a change, where it is there.
    type: bool
    default: true
  restore_at_boot:
    description: Whether the layout is given back at boot by a systemd unit that needs no Ansible. MIG instances do not
      survive a reboot.
    type: bool
    default: true
  pynvml:
    description: File or folder of the Python module pynvml, where it is not installed for the host's interpreter.
    type: path
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
requirements:
  - nvidia-ml-py >= 12.560 (pynvml) on the host, and root
seealso:
  - module: gpufleet.nvidia.gpu_nodes
  - module: gpufleet.nvidia.mig_node
"""

EXAMPLES = r"""
- name: Seven small slices on the first GPU, a mix on the others
  gpufleet.nvidia.mig_partition:
    layout:
      - gpus: [0]
        profiles:
          1g.10gb: 7
      - gpus: [1, 2, 3]
        profiles:
          1g.10gb: 2
          2g.20gb: 1
          3g.40gb: 1

- name: A layout by name, when the programs that hold GPUs have ended
  gpufleet.nvidia.mig_partition:
    name: all-balanced
    busy: wait
    busy_timeout: 3600

- name: A file of mig-parted as it is
  gpufleet.nvidia.mig_partition:
    config_file: mig-parted.yaml
    name: custom

- name: Write down what is there
  gpufleet.nvidia.mig_partition:
    state: exported
  register: mig
"""

RETURN = r"""
findings:
  description: What a person should know of the layout or the GPUs, all problems at once.
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
      description: The GPU that it is about. Empty for the layout itself.
      returned: always
      type: str
    path:
      description: Path of the key that it is about, such as V(layout[0].profiles).
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
      description: Name of the action within this run, such as V(gpu-0).
      returned: always
      type: str
    verb:
      description: One of V(update), V(delete).
      returned: always
      type: str
    target:
      description: The GPU, or the file.
      returned: always
      type: str
    reason:
      description: Why, in one sentence.
      returned: always
      type: str
    disruptive:
      description: Whether instances are destroyed.
      returned: always
      type: bool
    before:
      description: C(mig) and C(slices) of the GPU now.
      returned: always
      type: raw
    after:
      description: The same afterwards, and what is kept, destroyed and created as profile and slot.
      returned: always
      type: raw
found:
  description: What is there, after the run.
  returned: always
  type: dict
  contains:
    gpus:
      description: GPUs of the host. One that does not answer is missing, and has a finding C(mig.silent-gpu).
      returned: always
      type: list
      elements: dict
      contains:
        index:
          description: NVML's index.
          returned: always
          type: int
        uuid:
          description: UUID.
          returned: always
          type: str
        bus_id:
          description: PCI address.
          returned: always
          type: str
        name:
          description: Product.
          returned: always
          type: str
        minor:
          description: Number of the device file; it may change with the MIG mode. -1 where unknown.
          returned: always
          type: int
        mig_capable:
          description: Whether the GPU can do MIG.
          returned: always
          type: bool
        mig_enabled:
          description: Whether MIG is on.
          returned: always
          type: bool
        mig_pending:
          description: Whether the mode waits for a reset or a reboot.
          returned: always
          type: bool
        slices:
          description: One line for the slices, four characters a memory slot. C(*) marks those that programs hold.
          returned: always
          type: str
          sample: "[1g][1g*][2g----][3g------------]"
        instances:
          description: GPU instances by slot.
          returned: always
          type: list
          elements: dict
          contains:
            id:
              description: Id of the GPU instance.
              returned: always
              type: int
            profile:
              description: Name of its profile.
              returned: always
              type: str
            start:
              description: First memory slot.
              returned: always
              type: int
            size:
              description: Memory slots.
              returned: always
              type: int
            pids:
              description: Processes that hold it.
              returned: always
              type: list
              elements: int
            compute:
              description: Its compute instances.
              returned: always
              type: list
              elements: dict
              contains:
                id:
                  description: Id within the GPU instance.
                  returned: always
                  type: int
                slices:
                  description: Compute slices.
                  returned: always
                  type: int
                start:
                  description: First slice; -1 where the driver does not tell.
                  returned: always
                  type: int
                uuid:
                  description: UUID of the MIG device.
                  returned: always
                  type: str
    reset_required:
      description: Indexes of GPUs whose MIG mode waits for a reset.
      returned: when O(state=present)
      type: list
      elements: int
    reboot_required:
      description: Indexes of GPUs whose MIG mode waits for a reboot, since a virtual machine cannot reset them.
      returned: when O(state=present)
      type: list
      elements: int
    config:
      description: The layout as a mig-parted file with the label V(current).
      returned: when O(state=exported)
      type: dict
    config_yaml:
      description: The same as text.
      returned: when O(state=exported)
      type: str
    possible:
      description: All uniform layouts, and a balanced one, that the GPUs of this host can have, as a mig-parted file.
      returned: when O(state=exported)
      type: dict
verified:
  description: The layout of each GPU, read again after the change. Empty in check mode and when nothing was to do.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: What was proved, such as V(gpu-0).
      returned: always
      type: str
    ok:
      description: Whether it holds. Not while a mode waits for a reset or reboot.
      returned: always
      type: bool
    detail:
      description: What was seen.
      returned: always
      type: str
progress:
  description: The steps of the run in their order, as lines. Over SSH they are seen here only, when the run has ended.
  returned: always
  type: list
  elements: str
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "exported"], "default": "present"},
            "layout": {"type": "list", "elements": "dict"},
            "config_file": {"type": "path"},
            "config": {"type": "dict"},
            "name": {"type": "str"},
            "hooks_file": {"type": "path"},
            "hooks": {"type": "dict"},
            "busy": {"type": "str", "choices": ["refuse", "wait"], "default": "refuse"},
            "busy_timeout": {"type": "int", "default": 600},
            "foreign": {"type": "str", "choices": ["replace", "refuse"], "default": "replace"},
            "reset": {"type": "bool", "default": False},
            "services": {
                "type": "list",
                "elements": "str",
                "default": [
                    "nvsm.service",
                    "nvidia-dcgm.service",
                    "dcgm.service",
                    "dcgm-exporter.service",
                    "nvidia-dcgm-exporter.service",
                ],
            },
            "refresh_cdi": {"type": "bool", "default": True},
            "restore_at_boot": {"type": "bool", "default": True},
            "pynvml": {"type": "path"},
            "progress_file": {"type": "path"},
        },
        mutually_exclusive=[("layout", "config", "config_file"), ("layout", "name"), ("hooks", "hooks_file")],
        supports_check_mode=True,
    )
    run_module(module)


if __name__ == "__main__":
    main()
