#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm_exporter
short_description: Manage NVIDIA's DCGM exporter alone, in a cluster or on a host
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - With O(platform=kubernetes), makes the exporter's DaemonSet, Service and ServiceMonitor (and the standalone DCGM
    where the policy wants it) what the policy says,
    and touches nothing else of the stack.
  - With O(platform=systemd), DCGM and the exporter are services of the host. This answers that it is not there yet;
    the options stand.
  - Options of one platform are ignored on the other, so that connection defaults of an action group do no harm.
extends_documentation_fragment:
  - gpufleet.nvidia.cluster
  - gpufleet.nvidia.cluster.policy
  - gpufleet.nvidia.cluster.wait
  - gpufleet.nvidia.cluster.drift
attributes:
  check_mode:
    description: Plans and writes nothing. Dry runs are sent where the account may patch, so that refusals by
      admission show in the plan.
    support: full
  diff_mode:
    description: Shows what differs of each object.
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
  description: What was found in the cluster, and what the policy stands for.
  returned: always
  type: dict
  contains:
    namespace:
      description: Namespace of the operands.
      returned: success
      type: str
    release:
      description: Release of the GPU Operator whose versions are the defaults.
      returned: success
      type: str
    policy_hash:
      description: SHA-256 of the complete policy. Empty with O(state=absent).
      returned: success
      type: str
    stages:
      description: Operands in the order in which they come up on a node.
      returned: success
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
      returned: success
      type: list
      elements: dict
      contains:
        name:
          description: Name of the node.
          returned: always
          type: str
        product:
          description: Product of the GPUs as feature discovery names it. Empty until it has run.
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

from ansible_collections.gpufleet.nvidia.plugins.module_utils._args import CONNECTION, DRIFT, POLICY, WAIT, spec
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
        ),
        supports_check_mode=True,
    )
    run_module(module, dcgm_exporter)


if __name__ == "__main__":
    main()
