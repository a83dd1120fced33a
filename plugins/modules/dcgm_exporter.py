#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_exporter
short_description: Manage NVIDIA's DCGM exporter, in a cluster or on a host
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - With O(platform=kubernetes), makes the exporter's DaemonSet, Service and ServiceMonitor (and the standalone DCGM
    where the policy wants it) what the policy says,
    and touches nothing else of the stack.
  - With O(platform=systemd), DCGM and the exporter are services of the host. DCGM's packages are chosen by the driver
    and the GPUs, the counters file is judged before the exporter reads it, services start anew only when something that
    they work with has changed, and every wanted metric is seen to come out. What was there before comes back with
    O(state=absent).
  - Options of one platform are ignored on the other, so that connection defaults of an action group do no harm.
  - On a host O(accept) takes V(dcgm_too_old), V(dcgm_unknown), V(held), V(metric_absent) and V(unknown_field). Other
    words are refused.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.policy
  - gpufleet.nvidia.cluster.wait
  - gpufleet.nvidia.cluster.drift
attributes:
  check_mode:
    description: Plans and writes nothing. In a cluster dry runs are sent where the account may patch, so that refusals
      by admission show in the plan.
    support: full
  diff_mode:
    description: Shows what differs of each object or file.
    support: full
options:
  platform:
    description: Where the exporter runs.
    type: str
    choices: [kubernetes, systemd]
    required: true
  state:
    description: Whether the exporter runs or is removed.
    type: str
    choices: [present, absent]
    default: present
  metrics:
    description:
      - Metrics to export, in the exporter's CSV form (field, Prometheus type, help), one a line.
      - In a cluster they go into the ConfigMap that the policy names in C(dcgmExporter.config.name),
        C(metrics-config) by default; on a host into a file.
      - The exporter's own set by default.
    type: str
  port:
    description: TCP port of the exporter on a host. In a cluster it is 9400, as NVIDIA's images expect.
    type: int
    default: 9400
  listen_address:
    description: Address on which the exporter of a host listens.
    type: str
    default: 127.0.0.1
  hostengine:
    description: On a host, whether DCGM runs as a service of its own (V(standalone)) or inside the exporter
      (V(embedded)).
    type: str
    choices: [standalone, embedded]
    default: standalone
  hostengine_address:
    description:
      - Address of the host engine with O(hostengine=standalone).
      - C(nvidia-dcgm.service) is enabled and started where it is this host's own; another host's is only asked.
    type: str
    default: localhost:5555
  packages:
    description: Whether DCGM is installed on a host. With V(none) packages are left alone, as on DGX OS.
    type: str
    choices: [dcgm, none]
    default: dcgm
  dcgm_version:
    description: Version of DCGM on a host, or V(latest). What is installed stays by default, else the newest is taken.
    type: str
  cuda_major:
    description: CUDA for which DCGM is installed on a host, such as V(13). That of the loaded driver by default.
    type: int
  hold:
    description: Whether DCGM's packages are held at their version.
    type: bool
    default: true
  package_manager:
    description: Package manager of a host.
    type: str
    choices: [auto, apt, dnf, zypper]
    default: auto
  program:
    description: The exporter on a host. NVIDIA publishes no package of it; the program is in its image.
    type: path
    default: /usr/bin/dcgm-exporter
  container:
    description: Runs the exporter of a host in a container instead.
    type: dict
    suboptions:
      engine:
        description: What runs the container.
        type: str
        choices: [docker, podman]
        required: true
      image:
        description: Image of the exporter. NVIDIA's of the newest known release by default.
        type: str
      devices:
        description: How the container gets the GPUs. V(auto) is V(gpus) for docker and V(cdi) for podman.
        type: str
        choices: [auto, gpus, cdi]
        default: auto
  collect_interval:
    description: Milliseconds between two readings of the GPUs, on a host.
    type: int
    default: 30000
  settings:
    description:
      - Further flags of the exporter on a host by name, without dashes before them, such as C(hpc-job-mapping-dir) or
        C(devices). Unknown ones are refused with the nearest name.
    type: dict
  web_config:
    description: TLS and names with passwords for whoever asks the exporter of a host.
    type: dict
    suboptions:
      cert_file:
        description: Certificate on the host, not below C(/home), C(/root) or C(/tmp), which the service does not see.
        type: path
      key_file:
        description: Its key on the host, as for the certificate.
        type: path
      basic_auth_users:
        description: Bcrypt hash of the password by name.
        type: dict
  scrape_timeout:
    description: Seconds within which every wanted metric has to come out on a host.
    type: int
    default: 60
  service_monitor:
    description: Whether a ServiceMonitor is made in a cluster whose CRD is there. The policy's
      C(dcgmExporter.serviceMonitor.enabled) by default.
    type: bool
seealso:
  - module: gpufleet.nvidia.cluster_policy
"""

EXAMPLES = r"""
- name: The exporter with a short list of metrics
  gpufleet.nvidia.dcgm_exporter:
    platform: kubernetes
    metrics: |
      DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization in percent.
      DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used in MiB.

- name: DCGM and the exporter as services of a host, for Prometheus on other machines
  gpufleet.nvidia.dcgm_exporter:
    platform: systemd
    dcgm_version: 4.6.0
    listen_address: 192.0.2.10
    web_config:
      cert_file: /etc/ssl/certs/exporter.pem
      key_file: /etc/ssl/private/exporter.key
  become: true

- name: The exporter in a container, with job names of Slurm
  gpufleet.nvidia.dcgm_exporter:
    platform: systemd
    container:
      engine: podman
      image: registry.example.com/nvidia/dcgm-exporter:4.6.0-4.8.3-distroless
    settings:
      hpc-job-mapping-dir: /var/run/gpu-jobs
  become: true
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
      description: One of V(create), V(update), V(replace), V(delete), V(label); on a host also V(install), V(upgrade),
        V(downgrade), V(remove), V(hold), V(unhold), V(pull), V(enable), V(disable), V(start), V(restart), V(stop),
        V(restore), V(forget).
      returned: always
      type: str
    target:
      description: Kind, namespace and name of the object; a package, file or unit on a host.
      returned: always
      type: str
    reason:
      description: Why, in one sentence.
      returned: always
      type: str
    disruptive:
      description: Whether pods are stopped by it, or metrics fail to come for a moment.
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
  description: What was found in the cluster and what the policy stands for, or what was found on the host.
  returned: always
  type: dict
  contains:
    namespace:
      description: Namespace of the operands.
      returned: when O(platform=kubernetes)
      type: str
    release:
      description: Release of the GPU Operator whose versions are the defaults.
      returned: when O(platform=kubernetes)
      type: str
    policy_hash:
      description: SHA-256 of the complete policy. Empty with O(state=absent).
      returned: when O(platform=kubernetes)
      type: str
    stages:
      description: Operands in the order in which they come up on a node.
      returned: when O(platform=kubernetes)
      type: list
      elements: dict
      contains:
        name:
          description: Name of the stage, such as V(state-driver).
          returned: always
          type: str
        title:
          description: What a person calls it.
          returned: always
          type: str
        state:
          description: One of V(ready), V(waiting), V(off) and V(no nodes).
          returned: always
          type: str
        workloads:
          description: Its DaemonSets and Deployments.
          returned: always
          type: list
          elements: str
        desired:
          description: Pods that should run.
          returned: always
          type: int
        ready:
          description: Pods that are ready.
          returned: always
          type: int
    nodes:
      description: GPU nodes, sorted by name.
      returned: when O(platform=kubernetes)
      type: list
      elements: dict
      contains:
        name:
          description: Name of the node.
          returned: always
          type: str
        product:
          description: Product of the GPUs as feature discovery names it, of one where there are several. Empty until it
            has run.
          returned: always
          type: str
        models:
          description: How many GPUs of each model are on the PCI bus, from Node Feature Discovery. Empty where that was
            not looked at, since a run reads this long list only when something changes or a node is not as expected.
          returned: always
          type: dict
          sample: {"A10": 1, "Tesla T4": 2}
        workload:
          description: What its operands give its GPUs to, V(container), V(vm-passthrough) or V(vm-vgpu). Empty while it
            has none.
          returned: always
          type: str
        gpus:
          description: GPUs that the hardware has, or -1 while nothing on the node has counted them.
          returned: always
          type: int
        driver:
          description: Version of the loaded driver. Empty while there is none.
          returned: always
          type: str
        mig:
          description: Name of the MIG configuration and its state, such as V(all-1g.10gb (success)). Empty where the
            GPUs have no MIG.
          returned: always
          type: str
        allocatable:
          description: GPU resources that the node offers, by name.
          returned: always
          type: dict
          sample: {"nvidia.com/gpu": 8}
        units:
          description: How many GPUs, slices or shares of GPUs pods can use on the node, the sum of C(allocatable). The
            label C(nvidia.com/gpu.count) does not tell that, it counts cards (slices with the MIG strategy single).
          returned: always
          type: int
        stage:
          description: Stage that the node has reached, such as V(driver), V(toolkit), V(device plugin) or V(ready).
          returned: always
          type: str
        ready:
          description: Whether pods can use the node's GPUs.
          returned: always
          type: bool
        failed:
          description: Whether something on the node is broken, rather than slow or left out on purpose.
          returned: always
          type: bool
        trouble:
          description: The first thing that is not in order, in one sentence with layer, cause and what to do next.
            Empty when all is.
          returned: always
          type: str
        os:
          description: Operating system and version, such as V(ubuntu24.04).
          returned: always
          type: str
        kernel:
          description: Kernel release.
          returned: always
          type: str
        runtime:
          description: Container runtime and version.
          returned: always
          type: str
    requests:
      description: Requests that this run sent to the API server.
      returned: when O(platform=kubernetes)
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
    driver:
      description: Version of the loaded driver. Empty without one.
      returned: when O(platform=systemd)
      type: str
    cuda:
      description: Major version of CUDA that the driver runs. 0 where nobody tells.
      returned: when O(platform=systemd)
      type: int
    gpus:
      description: GPUs of the host, in NVML's order.
      returned: when O(platform=systemd)
      type: list
      elements: dict
      contains:
        uuid:
          description: UUID. Empty where only PCI tells of the GPU.
          returned: always
          type: str
        product:
          description: Product.
          returned: always
          type: str
        architecture:
          description: Architecture, such as V(hopper).
          returned: always
          type: str
        mig:
          description: Whether MIG is on.
          returned: always
          type: bool
        instances:
          description: Ids of its GPU instances.
          returned: always
          type: list
          elements: int
    packages:
      description: Packages of DCGM before the run, version by name.
      returned: when O(platform=systemd)
      type: dict
      sample: {"datacenter-gpu-manager-4-core": "1:4.6.0-1"}
    hostengine:
      description: The host engine's service before the run.
      returned: when O(platform=systemd)
      type: dict
      contains:
        unit:
          description: Name of the unit.
          returned: always
          type: str
        there:
          description: Whether there is such a unit.
          returned: always
          type: bool
        enabled:
          description: Whether it starts at boot.
          returned: always
          type: bool
        running:
          description: Whether it runs.
          returned: always
          type: bool
    exporter:
      description: The exporter's service before the run.
      returned: when O(platform=systemd)
      type: dict
      contains:
        unit:
          description: Name of the unit.
          returned: always
          type: str
        there:
          description: Whether there is such a unit.
          returned: always
          type: bool
        enabled:
          description: Whether it starts at boot.
          returned: always
          type: bool
        running:
          description: Whether it runs.
          returned: always
          type: bool
    address:
      description: Address and port on which the exporter listens. Empty with O(state=absent).
      returned: when O(platform=systemd)
      type: str
    metrics:
      description: Metrics that are asked for.
      returned: when O(platform=systemd)
      type: dict
      contains:
        wanted:
          description: Their names, in the order of the counters file.
          returned: always
          type: list
          elements: str
        absent:
          description: Those that do not come, after a real run.
          returned: always
          type: list
          elements: dict
          contains:
            name:
              description: Name of the metric.
              returned: always
              type: str
            reason:
              description: What of the hardware or of MIG explains it, or V(unknown).
              returned: always
              type: str
verified:
  description: Proofs of the end state, read from the nodes, or from the exporter itself, and not from what was written.
    Empty in check mode.
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, DRIFT, POLICY, WAIT, spec
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._entry import run_module as run_on_host
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._entry import run_module
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._parts import dcgm_exporter


def main():
    module = AnsibleModule(
        argument_spec=spec(
            CONNECTION,
            POLICY,
            WAIT,
            DRIFT,
            platform={"type": "str", "choices": ["kubernetes", "systemd"], "required": True},
            state={"type": "str", "choices": ["present", "absent"], "default": "present"},
            metrics={"type": "str"},
            port={"type": "int", "default": 9400},
            listen_address={"type": "str", "default": "127.0.0.1"},
            hostengine={"type": "str", "choices": ["standalone", "embedded"], "default": "standalone"},
            service_monitor={"type": "bool"},
            hostengine_address={"type": "str", "default": "localhost:5555"},
            packages={"type": "str", "choices": ["dcgm", "none"], "default": "dcgm"},
            dcgm_version={"type": "str"},
            cuda_major={"type": "int"},
            hold={"type": "bool", "default": True},
            package_manager={"type": "str", "choices": ["auto", "apt", "dnf", "zypper"], "default": "auto"},
            program={"type": "path", "default": "/usr/bin/dcgm-exporter"},
            container={
                "type": "dict",
                "options": {
                    "engine": {"type": "str", "choices": ["docker", "podman"], "required": True},
                    "image": {"type": "str"},
                    "devices": {"type": "str", "choices": ["auto", "gpus", "cdi"], "default": "auto"},
                },
            },
            collect_interval={"type": "int", "default": 30000},
            settings={"type": "dict"},
            web_config={
                "type": "dict",
                "options": {
                    "cert_file": {"type": "path"},
                    "key_file": {"type": "path", "no_log": False},
                    "basic_auth_users": {"type": "dict", "no_log": True},
                },
            },
            scrape_timeout={"type": "int", "default": 60},
        ),
        supports_check_mode=True,
    )
    if module.params["platform"] == "systemd":
        run_on_host(module)
    run_module(module, dcgm_exporter)


if __name__ == "__main__":
    main()
