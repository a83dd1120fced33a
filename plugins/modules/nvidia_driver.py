#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver
short_description: NVIDIA driver of a host, by packages
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Installs the driver that fits the GPUs, kernel and distribution of a host, at one version, and holds it there.
  - Everything that speaks against it is found first, as findings with what to do. Every package is known to be there in
    the wanted version, and downloaded, before the old driver is touched.
  - The new modules are loaded in place where nothing stands in the way. Services that use GPUs are stopped for that and
    started again, and settings of GPUs and MIG layouts come back. Otherwise the reasons for a reboot are told.
  - What fails halfway puts the old packages back. A run that was killed is ended by the next one.
  - What is installed and fits stays, however often the module runs.
attributes:
  check_mode:
    description: Finds, judges and plans; writes nothing.
    support: full
  diff_mode:
    description: Shows files before and after.
    support: full
options:
  state:
    description: With V(absent) packages that this module brought go, and holds, files and parameters are as they were
      found. A driver that was there before stays, in the version that it has.
    type: str
    choices: [present, absent]
    default: present
  branch:
    description: Branch of the driver, such as V(580). Without it the one that is installed, else what suits the GPUs.
    type: int
  version:
    description: Full version such as V(580.95.05), or V(latest) of the branch. Without it what is installed stays, and
      the newest of the branch is installed where nothing is.
    type: str
  flavour:
    description: Kernel modules. V(auto) is what the GPUs need; where both fit, what is installed, else the open ones.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  source:
    description:
      - Where packages come from. V(distribution) is its own archive, V(nvidia) NVIDIA's repository or a mirror,
        V(local) NVIDIA's local repository package, V(precompiled) modules that are built and signed already.
      - V(auto) is where the installed packages came from, else the first that the distribution has.
    type: str
    choices: [auto, distribution, nvidia, local, precompiled]
    default: auto
  repository:
    description: NVIDIA's repository, a mirror, or its local form. Without it the repositories that the host has.
    type: dict
    suboptions:
      url:
        description: Address that the folders of the distributions lie below.
        type: str
      path:
        description: Part below the address, where a mirror has another one.
        type: str
      key:
        description: Public key, in letters.
        type: str
      key_file:
        description: File on the host that has the public key.
        type: path
      proxy:
        description: Proxy by which the host reaches the repository, such as V(http://proxy.example.com:3128). A user
          and a password belong into the package manager's own files.
        type: str
      ca_file:
        description: File on the host with the certificates that the repository is trusted by, where the host itself
          does not trust them. Not for zypper, which trusts what the host trusts.
        type: path
      form:
        description: Form of apt's file.
        type: str
        choices: [list, deb822]
      folder:
        description: Folder of the local form, such as C(/var/nvidia-driver-local-repo-ubuntu2404-580.95.05).
        type: path
      signed:
        description: What of dnf's and zypper's is signed.
        type: str
        choices: [packages, metadata]
  use:
    description: What is installed. V(compute) has no parts for displays, V(desktop) none for computing alone.
    type: str
    choices: [compute, full, desktop]
    default: compute
  companions:
    description: What is installed beside the driver, in its version. V(auto) is the persistence daemon, and what the
      NVSwitches and NVLink of this host need. Others are V(fabric_manager), V(imex), V(nscq), V(nvsdm),
      V(nvlsm), V(persistenced), V(peermem), V(gds), V(gdrcopy).
    type: list
    elements: str
    default: [auto]
  kernel:
    description: Release of the kernel that the modules are for. Without it the running one.
    type: str
  apply:
    description:
      - How the running kernel gets the new modules. With V(now) at once; the run is refused while programs use GPUs.
      - With V(if_idle) at once where no program uses GPUs, else by the next boot. With V(next_boot) by the next boot.
      - Until that boot, programs that start find libraries that do not fit the loaded modules.
    type: str
    choices: [now, if_idle, next_boot]
    default: now
  accept:
    description: Findings that do not stop the run, by id, such as V(foreign_origin), V(runfile), V(held),
      V(secure_boot), V(gpus_in_use). The finding tells what is done then. Other words are refused.
    type: list
    elements: str
    default: []
  parameters:
    description: Parameters of kernel modules, by module and then by name. The modules are loaded anew for them.
    type: dict
  hold:
    description: Whether the packages are held, so that an update of the host does not move them.
    type: bool
    default: true
  matrix:
    description: Rows that are added to the matrix of versions, or take the place of some.
    type: dict
  imex_nodes:
    description: Addresses of the hosts of one NVLink domain, this one too. They are written to
      C(/etc/nvidia-imex/nodes_config.cfg), and IMEX starts anew when they change. Without them that file is left alone.
    type: list
    elements: str
    default: []
  version_rules:
    description:
      - Versions that are allowed. Of the versions that there are, those that a rule does not allow are not taken, and
        one that is installed is exchanged unless O(version) names it.
      - Versions may be cut short. V(580) is every version of the branch.
    type: list
    elements: dict
    default: []
    suboptions:
      gpus:
        description: Architectures such as V(hopper), or words of products' names such as V(L40S), that the rule is
          about. Without them it is about every host.
        type: list
        elements: str
      min:
        description: Oldest version.
        type: str
      max:
        description: Newest version.
        type: str
      excluded:
        description: Versions that are known to be bad.
        type: list
        elements: str
      reason:
        description: What is told with it.
        type: str
  beside:
    description:
      - What is to stand on the driver, as its modules are asked for it. It is judged with the driver, the GPUs and the
        kernel as one set, before anything is written; nothing of it is installed. What is not said here is judged as
        it is on the host, and what did not fit there before is a warning.
      - Without it the driver is judged without what stands on it.
    type: dict
    suboptions:
      container_toolkit:
        description: What M(gpufleet.nvidia.container_toolkit) is asked.
        type: dict
        suboptions:
          version:
            description: Its O(gpufleet.nvidia.container_toolkit#module:version). Empty for what is installed, which
              stays. V(latest) is not judged, since nobody knows it yet. Without it nothing is asked of the module.
            type: str
          accept:
            description: Its O(gpufleet.nvidia.container_toolkit#module:accept).
            type: list
            elements: str
            default: []
      cuda_toolkit:
        description: What M(gpufleet.nvidia.cuda_toolkit) is asked.
        type: dict
        suboptions:
          version:
            description: Its O(gpufleet.nvidia.cuda_toolkit#module:version), such as V(13.0). Without it nothing is
              asked of the module.
            type: str
          accept:
            description: Its O(gpufleet.nvidia.cuda_toolkit#module:accept).
            type: list
            elements: str
            default: []
      dcgm_exporter:
        description: What M(gpufleet.nvidia.dcgm_exporter) is asked on this host.
        type: dict
        suboptions:
          version:
            description: Its O(gpufleet.nvidia.dcgm_exporter#module:dcgm_version). Empty for what is installed, which
              stays. V(latest) is not judged, since nobody knows it yet. Without it nothing is asked of the module.
            type: str
          accept:
            description: Its O(gpufleet.nvidia.dcgm_exporter#module:accept).
            type: list
            elements: str
            default: []
  mok_password:
    description: One-time password for the console, where the key of modules that are built here is to be registered
      with the firmware (V(secure_boot) in O(accept)).
    type: str
  root:
    description: Folder that has the file system of a host. Other than C(/) in check mode only.
    type: path
    default: /
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
requirements:
  - root on the host
  - nvidia-ml-py where a driver is loaded, so that settings of its GPUs can be kept
seealso:
  - module: gpufleet.nvidia.gpu_info
  - module: gpufleet.nvidia.container_toolkit
  - module: gpufleet.nvidia.mig_partition
"""

EXAMPLES = r"""
- name: What fits this host, from the repositories that it has
  gpufleet.nvidia.nvidia_driver:

- name: One branch, from a mirror
  gpufleet.nvidia.nvidia_driver:
    branch: 580
    repository:
      url: https://mirror.example.com/cuda/repos
      key_file: /etc/pki/mirror.asc

- name: One version, which the next boot loads, and users may profile
  gpufleet.nvidia.nvidia_driver:
    version: 580.95.05
    apply: next_boot
    parameters:
      nvidia:
        NVreg_RestrictProfilingToAdminUsers: 0
  register: driver

- name: Hosts of one NVLink domain, and no version that is known to be bad
  gpufleet.nvidia.nvidia_driver:
    branch: 580
    companions: [auto, imex]
    imex_nodes: [192.0.2.7, 192.0.2.8]
    version_rules:
      - gpus: [blackwell]
        min: "580.65"
        excluded: ["580.82.07"]
        reason: ticket 4711

- name: What a run would do to this host, and what speaks against it
  gpufleet.nvidia.nvidia_driver:
    branch: 595
  check_mode: true

- name: Whether a driver is one for the CUDA that comes after it
  gpufleet.nvidia.nvidia_driver:
    branch: 580
    beside:
      cuda_toolkit:
        version: "13.0"
  check_mode: true

- name: The host as it was found
  gpufleet.nvidia.nvidia_driver:
    state: absent
"""

RETURN = r"""
findings:
  description: What a person should know of the options or the host, all problems at once.
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
      description: The GPU, folder or package that it is about.
      returned: always
      type: str
    path:
      description: Path of the option that it is about, such as V(companions[0]).
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
      description: Word for O(accept) that lets the run go on all the same. Empty when there is none.
      returned: always
      type: str
plan:
  description: What differs and what is done about it, in order. The same in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the action within this run, such as V(package-nvidia-utils-580).
      returned: always
      type: str
    verb:
      description: One of V(install), V(upgrade), V(downgrade), V(remove), V(hold), V(unhold), V(enable), V(reset),
        V(create), V(update), V(delete), V(restore), V(stop), V(start), V(restart), V(disable), V(unload), V(load),
        V(build), V(rebuild), V(forget).
      returned: always
      type: str
    target:
      description: The package, file or service.
      returned: always
      type: str
    reason:
      description: Why, in a few words.
      returned: always
      type: str
    disruptive:
      description: Whether programs cannot use GPUs from here on, until the modules are loaded again.
      returned: always
      type: bool
    before:
      description: Version before.
      returned: always
      type: raw
    after:
      description: Version after.
      returned: always
      type: raw
reboot_required:
  description: Whether the host has to be booted before it works with what is installed.
  returned: success
  type: bool
reboot_reasons:
  description: Why, as sentences.
  returned: success
  type: list
  elements: str
found:
  description: What was there before the run.
  returned: always
  type: dict
  contains:
    system:
      description: The operating system.
      returned: always
      type: dict
      contains:
        id:
          description: Its name, as C(/etc/os-release) has it.
          returned: always
          type: str
        version:
          description: Its version.
          returned: always
          type: str
        family:
          description: V(apt), V(dnf), V(zypper), V(immutable), or empty where it is not known.
          returned: always
          type: str
        architecture:
          description: V(x86_64) or V(aarch64).
          returned: always
          type: str
        kernel:
          description: The running kernel.
          returned: always
          type: str
        newest_kernel:
          description: The newest that is installed.
          returned: always
          type: str
    gpus:
      description: GPUs, with or without a driver.
      returned: always
      type: list
      elements: dict
      contains:
        bus_id:
          description: Its place on the PCI bus.
          returned: always
          type: str
        product:
          description: Its name.
          returned: always
          type: str
        architecture:
          description: Its architecture, such as V(hopper).
          returned: always
          type: str
        driver:
          description: The kernel driver that has it.
          returned: always
          type: str
    fabric:
      description: V(none), V(nvswitch) or V(nvlink5).
      returned: always
      type: str
    driver:
      description: The driver.
      returned: always
      type: dict
      contains:
        state:
          description: As C(found.driver.state) of M(gpufleet.nvidia.gpu_info).
          returned: always
          type: str
        loaded:
          description: Version of the loaded modules.
          returned: always
          type: str
        flavour:
          description: V(open) or V(proprietary), of the loaded modules.
          returned: always
          type: str
        built:
          description: Version of the module file for the kernel.
          returned: always
          type: str
        built_flavour:
          description: Its flavour.
          returned: always
          type: str
        runfile:
          description: Whether NVIDIA's own installer put it there.
          returned: always
          type: bool
        origins:
          description: Who made the packages, such as V(distribution), V(nvidia).
          returned: always
          type: list
          elements: str
    packages:
      description: Packages of the driver and of what stands on it.
      returned: always
      type: list
      elements: dict
      contains:
        name:
          description: Its name.
          returned: always
          type: str
        version:
          description: Its full version.
          returned: always
          type: str
        held:
          description: Whether updates leave it alone.
          returned: always
          type: bool
    secure_boot:
      description: V(enabled), V(disabled) or V(unknown).
      returned: always
      type: str
    processes:
      description: Programs that had a GPU open.
      returned: always
      type: list
      elements: dict
      contains:
        pid:
          description: Its number.
          returned: always
          type: int
        name:
          description: Its name.
          returned: always
          type: str
        unit:
          description: Its systemd unit.
          returned: always
          type: str
verified:
  description: The end state, by the package database, the module file, the running kernel and nvidia-smi. Empty in
    check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: What was proved, such as V(driver.loaded).
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "branch": {"type": "int"},
            "version": {"type": "str"},
            "flavour": {"type": "str", "choices": ["auto", "open", "proprietary"], "default": "auto"},
            "source": {
                "type": "str",
                "choices": ["auto", "distribution", "nvidia", "local", "precompiled"],
                "default": "auto",
            },
            "repository": {
                "type": "dict",
                "options": {
                    "url": {"type": "str"},
                    "path": {"type": "str"},
                    "key": {"type": "str", "no_log": False},
                    "key_file": {"type": "path"},
                    "proxy": {"type": "str"},
                    "ca_file": {"type": "path"},
                    "form": {"type": "str", "choices": ["list", "deb822"]},
                    "folder": {"type": "path"},
                    "signed": {"type": "str", "choices": ["packages", "metadata"]},
                },
            },
            "use": {"type": "str", "choices": ["compute", "full", "desktop"], "default": "compute"},
            "companions": {"type": "list", "elements": "str", "default": ["auto"]},
            "kernel": {"type": "str"},
            "apply": {"type": "str", "choices": ["now", "if_idle", "next_boot"], "default": "now"},
            "accept": {"type": "list", "elements": "str", "default": []},
            "parameters": {"type": "dict"},
            "hold": {"type": "bool", "default": True},
            "matrix": {"type": "dict"},
            "imex_nodes": {"type": "list", "elements": "str", "default": []},
            "version_rules": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "gpus": {"type": "list", "elements": "str"},
                    "min": {"type": "str"},
                    "max": {"type": "str"},
                    "excluded": {"type": "list", "elements": "str"},
                    "reason": {"type": "str"},
                },
            },
            "beside": {
                "type": "dict",
                "options": {
                    name: {
                        "type": "dict",
                        "options": {
                            "version": {"type": "str"},
                            "accept": {"type": "list", "elements": "str", "default": []},
                        },
                    }
                    for name in ("container_toolkit", "cuda_toolkit", "dcgm_exporter")
                },
            },
            "mok_password": {"type": "str", "no_log": True},
            "root": {"type": "path", "default": "/"},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run_module(module)


if __name__ == "__main__":
    main()
