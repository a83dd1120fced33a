#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Tell what GPUs a host has, and in what state its driver, MIG, runtimes and processes are
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Reads GPUs and NVSwitches from sysfs, the driver from C(/proc), C(/sys) and its files, GPUs, MIG and processes from
    NVML, and container runtimes and CDI specifications from their files and sockets.
  - Changes nothing. It needs no driver, no C(pynvml) and no root, and works in containers and virtual machines. What
    could not be read is listed in RV(found.problems) with the reason and what to do; the module does not fail for it.
  - All keys of RV(found) are in every answer. What is not known is empty, V(-1) or V(unknown).
attributes:
  check_mode:
    description: Reads only.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  root:
    description:
      - Folder that is taken for C(/), such as a mounted disk of another machine.
      - With another folder than V(/) only files are read. NVML, C(nvidia-smi) and the kernel's log are not asked.
    type: path
    default: /
  pynvml:
    description: Folder or file of a copy of C(pynvml), looked at before the Python's own.
    type: path
  command_timeout:
    description:
      - Seconds that C(nvidia-smi) may take. It is run only where NVML cannot be asked through C(pynvml), and once.
      - A GPU that hangs holds it up.
    type: int
    default: 20
seealso:
  - module: gpufleet.nvidia.gpu_cluster_info
"""

EXAMPLES = r"""
- name: Read the GPUs of each host
  gpufleet.nvidia.gpu_info:
  become: true
  register: gpu

- name: Stop where something does not fit
  ansible.builtin.assert:
    that: gpu.findings | selectattr('severity', 'equalto', 'error') | length == 0
    fail_msg: "{{ gpu.findings | map(attribute='detail') | join('; ') }}"

- name: Hosts with H100 GPUs become a group
  ansible.builtin.group_by:
    key: "gpu_{{ gpu.found.gpus[0].architecture }}"
  when: gpu.found.gpus | length > 0

- name: Wait until nobody uses the first GPU
  gpufleet.nvidia.gpu_info:
  become: true
  register: gpu
  until: gpu.found.processes | selectattr('gpus', 'contains', 0) | length == 0
  retries: 30
  delay: 10
"""

RETURN = r"""
findings:
  description: What does not fit together on the host, such as a driver and libraries of different versions.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the kind of finding, such as V(driver.libraries). It stays the same between releases.
      returned: always
      type: str
    severity:
      description: One of V(error), V(warning), V(info). An error keeps GPUs from being used.
      returned: always
      type: str
    target:
      description: Bus id of the GPU or path of the file that it is about. Empty for the whole host.
      returned: always
      type: str
    path:
      description: Key of RV(found) that it comes from. Empty where there is a target.
      returned: always
      type: str
    detail:
      description: What was found.
      returned: always
      type: str
    remedy:
      description: What to do.
      returned: always
      type: str
    accept:
      description: Always empty here.
      returned: always
      type: str
found:
  description: The state of the host.
  returned: always
  type: dict
  contains:
    host:
      description: The machine around the GPUs.
      returned: always
      type: dict
      contains:
        kernel:
          description: Release of the running kernel.
          returned: always
          type: str
        architecture:
          description: Processor architecture, such as V(x86_64) or V(aarch64).
          returned: always
          type: str
        os_id:
          description: C(ID) of os-release, such as V(ubuntu).
          returned: always
          type: str
        os_version:
          description: C(VERSION_ID) of os-release.
          returned: always
          type: str
        os_name:
          description: C(PRETTY_NAME) of os-release.
          returned: always
          type: str
        container:
          description: Kind of container that the module ran in, such as V(docker). Empty on a host.
          returned: always
          type: str
        virtual_machine:
          description: Kind of virtual machine, V(other) for an unknown kind. Empty on metal.
          returned: always
          type: str
        immutable:
          description: Whether the operating system is an image to which no packages are added.
          returned: always
          type: bool
        sees_all_processes:
          description: Whether the module ran in the host's own process namespace.
          returned: always
          type: bool
        secure_boot:
          description: V(enabled), V(disabled) (also without UEFI) or V(unknown).
          returned: always
          type: str
        lockdown:
          description: V(none), V(integrity), V(confidentiality) or V(unknown).
          returned: always
          type: str
        kernel_options:
          description: Words of the kernel's command line that have to do with GPUs.
          returned: always
          type: list
          elements: str
    gpus:
      description: GPUs, by NVML's index. Those that NVML does not list come after them, by bus id.
      returned: always
      type: list
      elements: dict
      contains:
        bus_id:
          description: PCI address as the kernel writes it.
          returned: always
          type: str
          sample: "0000:3b:00.0"
        index:
          description: NVML's index, or -1.
          returned: always
          type: int
        minor:
          description: Number of the file C(/dev/nvidiaN), or -1. It may differ from the index.
          returned: always
          type: int
        uuid:
          description: UUID, such as V(GPU-7d1e...).
          returned: always
          type: str
        serial:
          description: Serial number of the board.
          returned: always
          type: str
        name:
          description: Product name as the driver gives it. Empty without a driver.
          returned: always
          type: str
        product:
          description: Product by its PCI id. Empty where the id is not in the list.
          returned: always
          type: str
        architecture:
          description: Architecture in lower case, such as V(hopper), or V(unknown).
          returned: always
          type: str
        compute_capability:
          description: Such as V(9.0). By the PCI id alone it may be V(5.x) or empty.
          returned: always
          type: str
        device_id:
          description: PCI vendor and device.
          returned: always
          type: str
          sample: "10de:2330"
        subsystem_id:
          description: PCI subsystem vendor and device.
          returned: always
          type: str
        pci_class:
          description: V(0x030200) for GPUs without a display, V(0x030000) for others. Empty where sysfs is not seen.
          returned: always
          type: str
        flavour:
          description: Kernel modules that can drive it, V(open), V(proprietary), V(either) or V(unknown).
          returned: always
          type: str
        first_branch:
          description: First driver branch that drives it, or 0.
          returned: always
          type: int
        last_branch:
          description: Last driver branch that drives it, or 0 when there is none.
          returned: always
          type: int
        driver:
          description: Kernel driver that is bound to it, such as V(nvidia), V(nouveau) or V(vfio-pci). Empty for none.
          returned: always
          type: str
        numa_node:
          description: NUMA node, or -1.
          returned: always
          type: int
        iommu_group:
          description: IOMMU group, or -1 without an IOMMU.
          returned: always
          type: int
        virtual_function:
          description: Whether it is a virtual function of another one (SR-IOV).
          returned: always
          type: bool
        excluded:
          description: Whether the driver's settings exclude it.
          returned: always
          type: bool
        memory_mib:
          description: Memory in MiB, or 0.
          returned: always
          type: int
        vbios:
          description: Version of the video BIOS.
          returned: always
          type: str
        firmware:
          description: Version of the firmware of its own processor (GSP).
          returned: always
          type: str
        persistence_mode:
          description: V(enabled), V(disabled), V(unsupported) or V(unknown).
          returned: always
          type: str
        compute_mode:
          description: V(default), V(exclusive_process), V(exclusive_thread), V(prohibited) or V(unknown).
          returned: always
          type: str
        ecc:
          description: V(enabled), V(disabled), V(unsupported) or V(unknown).
          returned: always
          type: str
        virtualization:
          description: V(none), V(pass-through), V(vgpu), V(host_vgpu), V(host_vsga) or V(unknown).
          returned: always
          type: str
        power_limit_watts:
          description: Power limit, or -1.
          returned: always
          type: float
        mig:
          description: Partitions.
          returned: always
          type: dict
          contains:
            capable:
              description: V(yes), V(no) or V(unknown). NVML's word, or that of the PCI id.
              returned: always
              type: str
            current:
              description: V(enabled), V(disabled), V(unsupported) or V(unknown).
              returned: always
              type: str
            pending:
              description: The same, after the next reset.
              returned: always
              type: str
            instances:
              description: GPU instances, by slot.
              returned: always
              type: list
              elements: dict
              contains:
                id:
                  description: Number of the instance.
                  returned: always
                  type: int
                profile:
                  description: Profile, such as V(1g.10gb). Empty where the layout may not be read.
                  returned: always
                  type: str
                start:
                  description: First memory slot, or -1.
                  returned: always
                  type: int
                size:
                  description: Memory slots, or -1.
                  returned: always
                  type: int
                compute:
                  description: Compute instances.
                  returned: always
                  type: list
                  elements: dict
                  contains:
                    id:
                      description: Number of the compute instance.
                      returned: always
                      type: int
                    profile:
                      description: Profile, such as V(1c.2g.20gb). That of the GPU instance when it takes all of it.
                      returned: always
                      type: str
                    start:
                      description: First slice inside the GPU instance, or -1.
                      returned: always
                      type: int
                    size:
                      description: Slices, or -1.
                      returned: always
                      type: int
                    uuid:
                      description: UUID of the MIG device, such as V(MIG-9c8b...).
                      returned: always
                      type: str
            profiles:
              description: Profiles that the GPU offers. Drivers before 550 tell them only while MIG is on.
              returned: always
              type: list
              elements: dict
              contains:
                name:
                  description: Such as V(1g.10gb).
                  returned: always
                  type: str
                id:
                  description: NVML's number of the profile.
                  returned: always
                  type: int
                count:
                  description: How many the GPU takes.
                  returned: always
                  type: int
                size:
                  description: Memory slots of one.
                  returned: always
                  type: int
                memory_mib:
                  description: Memory of one in MiB.
                  returned: always
                  type: int
                starts:
                  description: Slots at which one may begin.
                  returned: always
                  type: list
                  elements: int
        seen_by:
          description: What saw the GPU, of V(sysfs), V(driver) (C(/proc/driver/nvidia)), V(nvml), V(nvidia-smi).
          returned: always
          type: list
          elements: str
    switches:
      description: NVSwitches that are PCI devices.
      returned: always
      type: list
      elements: dict
      contains:
        bus_id:
          description: PCI address.
          returned: always
          type: str
        device_id:
          description: PCI vendor and device. Empty where only the driver lists it.
          returned: always
          type: str
        product:
          description: Product by its PCI id.
          returned: always
          type: str
        driver:
          description: Kernel driver that is bound to it.
          returned: always
          type: str
        numa_node:
          description: NUMA node, or -1.
          returned: always
          type: int
    nvlink5:
      description: InfiniBand devices that manage NVLink 5 switches. Needs root.
      returned: always
      type: list
      elements: str
    needs:
      description: What all GPUs of the host need together.
      returned: always
      type: dict
      contains:
        flavour:
          description: V(open), V(proprietary), V(either), V(none) (no GPU), V(impossible) or V(unknown).
          returned: always
          type: str
        first_branch:
          description: First driver branch that drives all of them, or 0.
          returned: always
          type: int
        last_branch:
          description: Last driver branch that drives all of them, or 0 when there is none.
          returned: always
          type: int
        fabric:
          description: V(nvswitch) or V(nvlink5), which need a fabric manager, or V(none).
          returned: always
          type: str
        why:
          description: GPUs that decide it, or why it is impossible.
          returned: always
          type: str
    driver:
      description: The driver, loaded and on disk.
      returned: always
      type: dict
      contains:
        state:
          description:
            - V(ready) when it answers, V(mismatch) when its libraries and the loaded module differ, V(failed) when it
              is loaded and does not answer, V(loaded) when it is loaded and nobody could ask it.
            - V(not_loaded) when a module for the running kernel is on disk, V(files_only) when only other files are,
              V(absent) when there is nothing.
          returned: always
          type: str
        why:
          description: Reason of the state.
          returned: always
          type: str
        version:
          description: Version of the loaded module. Empty when none is loaded.
          returned: always
          type: str
        flavour:
          description: V(open) or V(proprietary) modules are loaded. Empty when that is not known.
          returned: always
          type: str
        source_version:
          description: The kernel's checksum of the module's source.
          returned: always
          type: str
        references:
          description: How often the module C(nvidia) is in use, or -1.
          returned: always
          type: int
        holders:
          description: Kernel modules that use C(nvidia).
          returned: always
          type: list
          elements: str
        modules:
          description: Loaded kernel modules of the driver, and what stands on it.
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: Name.
              returned: always
              type: str
            references:
              description: How often it is in use, or -1.
              returned: always
              type: int
            used_by:
              description: Modules that use it.
              returned: always
              type: list
              elements: str
            version:
              description: Version, where it has one.
              returned: always
              type: str
        parameters:
          description: Settings of the loaded module, from C(/proc/driver/nvidia/params).
          returned: always
          type: dict
        module_files:
          description: Files of the module C(nvidia) below C(/lib/modules), of every kernel.
          returned: always
          type: list
          elements: dict
          contains:
            path:
              description: Path.
              returned: always
              type: str
            kernel:
              description: Kernel release that it is for.
              returned: always
              type: str
            running:
              description: Whether that kernel runs.
              returned: always
              type: bool
            version:
              description: Driver version. Empty where the file could not be read.
              returned: always
              type: str
            flavour:
              description: V(open) or V(proprietary), by its licence.
              returned: always
              type: str
            signer:
              description: Who signed it. Empty without a signature.
              returned: always
              type: str
        libraries:
          description: Files of C(libnvidia-ml) and C(libcuda), where the loader and driver containers have them.
          returned: always
          type: list
          elements: dict
          contains:
            path:
              description: Path.
              returned: always
              type: str
            version:
              description: Driver version, by the file's name.
              returned: always
              type: str
        firmware:
          description: Versions of which firmware is on disk.
          returned: always
          type: list
          elements: str
        kernels:
          description: Installed kernels.
          returned: always
          type: list
          elements: str
        runfile:
          description: Whether NVIDIA's own installer put the driver there.
          returned: always
          type: bool
        packages:
          description: Installed packages of the driver, the container toolkit, fabric manager and DCGM.
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: Name.
              returned: always
              type: str
            version:
              description: Version.
              returned: always
              type: str
            manager:
              description: V(dpkg) or V(rpm).
              returned: always
              type: str
            held:
              description: Whether updates leave it alone.
              returned: always
              type: bool
        rivals:
          description: Other drivers for the same GPUs. Nouveau is always listed.
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: Name of the kernel module.
              returned: always
              type: str
            loaded:
              description: Whether it is loaded.
              returned: always
              type: bool
            references:
              description: How often it is in use, or -1.
              returned: always
              type: int
            bound:
              description: Bus ids of GPUs that it drives.
              returned: always
              type: list
              elements: str
            blocked_by:
              description: Files and kernel options that keep it from loading.
              returned: always
              type: list
              elements: str
    nvml:
      description: How NVML answered.
      returned: always
      type: dict
      contains:
        state:
          description: V(ok), V(no_pynvml), V(no_library), V(not_loaded), V(mismatch), V(permission), V(no_access),
            V(lost), V(failed), or V(not_asked) with another O(root).
          returned: always
          type: str
        why:
          description: What it said.
          returned: always
          type: str
        remedy:
          description: What to do.
          returned: always
          type: str
        driver_version:
          description: Version of the driver.
          returned: always
          type: str
        library_version:
          description: Version of the library.
          returned: always
          type: str
        cuda_version:
          description: Newest CUDA version that the driver serves.
          returned: always
          type: str
    nvidia_smi:
      description: How C(nvidia-smi) ended, asked only where NVML was not to be had.
      returned: always
      type: dict
      contains:
        path:
          description: Where it is. Empty without one.
          returned: always
          type: str
        state:
          description: V(not_asked), V(ok), or the cause, such as V(not_loaded), V(mismatch), V(no_devices), V(lost),
            V(hung).
          returned: always
          type: str
        why:
          description: What its end means.
          returned: always
          type: str
        remedy:
          description: What to do.
          returned: always
          type: str
    processes:
      description: Processes that have GPU files open or the driver's libraries in memory, and those that NVML names.
      returned: always
      type: list
      elements: dict
      contains:
        pid:
          description: Number of the process.
          returned: always
          type: int
        name:
          description: Name, at most 15 characters. Empty where only NVML knows it.
          returned: always
          type: str
        user:
          description: Number of the user, or -1.
          returned: always
          type: int
        unit:
          description: systemd unit that it belongs to.
          returned: always
          type: str
        container:
          description: Id of the container that it runs in.
          returned: always
          type: str
        files:
          description: GPU files that it has open, those of C(/dev/dri) that belong to an NVIDIA GPU included.
          returned: always
          type: list
          elements: str
        gpus:
          description: Indexes of GPUs that it uses.
          returned: always
          type: list
          elements: int
        uses:
          description: What NVML says of it.
          returned: always
          type: list
          elements: dict
          contains:
            gpu:
              description: Index of the GPU.
              returned: always
              type: int
            gpu_instance:
              description: GPU instance, or -1 outside MIG.
              returned: always
              type: int
            compute_instance:
              description: Compute instance, or -1 outside MIG.
              returned: always
              type: int
            memory_mib:
              description: Memory in MiB.
              returned: always
              type: int
        libraries:
          description: Whether libraries of the driver are in its memory.
          returned: always
          type: bool
        old_libraries:
          description: Whether one of them was replaced on disk since it started.
          returned: always
          type: bool
    runtimes:
      description: Container runtimes of which a part is there.
      returned: always
      type: list
      elements: dict
      contains:
        name:
          description: V(containerd), V(docker), V(crio), V(podman), V(k3s), V(rke2), V(microk8s) or V(k0s).
          returned: always
          type: str
        socket:
          description: Its socket. Empty without one.
          returned: always
          type: str
        listening:
          description: Whether a process listens on the socket, V(yes) or V(no).
          returned: always
          type: str
        unit:
          description: File of its systemd unit. Empty without one, and when it is masked.
          returned: always
          type: str
        program:
          description: Its program.
          returned: always
          type: str
        config:
          description: Its configuration files that are there.
          returned: always
          type: list
          elements: str
        mentions_nvidia:
          description: Whether one of them names NVIDIA's runtime.
          returned: always
          type: bool
    cdi:
      description: CDI specifications in C(/etc/cdi) and C(/var/run/cdi).
      returned: always
      type: list
      elements: dict
      contains:
        path:
          description: Path.
          returned: always
          type: str
        kind:
          description: Kind of its devices, such as V(nvidia.com/gpu).
          returned: always
          type: str
        version:
          description: Version of the format.
          returned: always
          type: str
        devices:
          description: Names of its devices.
          returned: always
          type: list
          elements: str
        driver_versions:
          description: Driver versions in the names of its libraries.
          returned: always
          type: list
          elements: str
        hidden_by:
          description: Another file that names the same devices and counts instead.
          returned: always
          type: str
        conflicts_with:
          description: Another file in the same folder that names the same devices, so that neither counts.
          returned: always
          type: str
    kernel_log:
      description: What the kernel's log says of GPUs since boot, by cause.
      returned: always
      type: list
      elements: dict
      contains:
        kind:
          description: Name of the cause, such as V(xid), V(needs_open), V(signature).
          returned: always
          type: str
        cause:
          description: The cause in words.
          returned: always
          type: str
        remedy:
          description: What to do.
          returned: always
          type: str
        bus_id:
          description: GPU or switch that it is about. Empty for the host.
          returned: always
          type: str
        code:
          description: Number of an Xid or SXid, or -1.
          returned: always
          type: int
        count:
          description: How often it was met.
          returned: always
          type: int
        text:
          description: The last such line.
          returned: always
          type: str
    problems:
      description: Parts that could not be read, or not in whole.
      returned: always
      type: list
      elements: dict
      contains:
        part:
          description: V(host), V(pci), V(driver), V(driver_files), V(packages), V(nvml), V(processes), V(runtimes),
            V(cdi) or V(kernel_log).
          returned: always
          type: str
        path:
          description: File, folder or GPU that it is about.
          returned: always
          type: str
        why:
          description: Why it could not be read.
          returned: always
          type: str
        remedy:
          description: What to do.
          returned: always
          type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host_state._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "pynvml": {"type": "path"},
            "command_timeout": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    run_module(module)


if __name__ == "__main__":
    main()
