# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation that modules of the cluster plane share."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments cluster (connection), cluster.policy, cluster.wait, cluster.drift and cluster.node_groups."""

    DOCUMENTATION = r"""
requirements:
  - Python package C(kubernetes) 31 or newer where the module runs
  - Kubernetes 1.32 or newer
options:
  kubeconfig:
    description:
      - Path of a kubeconfig file.
      - Without it and without O(host), E(KUBECONFIG) is used, then C(~/.kube/config), then the service account of the
        pod that the module runs in.
    type: path
  context:
    description: Context of the kubeconfig to use. The file's current context by default.
    type: str
  host:
    description: URL of the API server, such as V(https://192.0.2.10:6443). Use it with O(api_key) or O(client_cert)
      instead of a kubeconfig.
    type: str
  api_key:
    description: Bearer token.
    type: str
  ca_cert:
    description: Path of the certificate authority that signed the API server's certificate.
    type: path
  client_cert:
    description: Path of a client certificate.
    type: path
  client_key:
    description: Path of the key of O(client_cert).
    type: path
  validate_certs:
    description: Whether the API server's certificate is checked.
    type: bool
    default: true
  proxy:
    description: URL of a proxy to the API server.
    type: str
  request_timeout:
    description: Seconds that one request to the API server may take.
    type: int
    default: 30
"""

    POLICY = r"""
options:
  policy:
    description:
      - What is wanted. The values of the GPU Operator's Helm chart, the C(spec) of a C(ClusterPolicy), or a whole
        C(ClusterPolicy) or C(GPUClusterPolicy) object, unchanged.
      - Nothing given means the chart's defaults.
      - Merged over O(policy_files) when these are Helm values.
    type: dict
  policy_files:
    description:
      - YAML files with the same content as O(policy), on the controller. Several files are merged as C(helm -f) does,
        the last one wins.
    type: list
    elements: path
  policy_documents:
    description: The parsed content of O(policy_files). The action plugin fills it in; do not set it.
    type: list
    elements: dict
  set_values:
    description: Single values in the form of C(helm --set), such as V(driver.enabled=false). They win over everything
      else.
    type: list
    elements: str
  release:
    description:
      - Release of the GPU Operator whose operand versions are the defaults, such as V(v26.7.0).
      - The newest release that the collection knows by default.
    type: str
  accept:
    description:
      - Names of findings that are accepted, such as V(policy.driver-end-of-life). They are reported as warnings and
        stop nothing.
      - Only findings that say so can be accepted.
    type: list
    elements: str
  namespace:
    description: Namespace of the operands.
    type: str
    default: gpu-operator
  image_registry:
    description:
      - Registry, and a path in it where that is wanted, from which every image is pulled, such as
        V(registry.example.com/mirror). Paths, versions and digests of the images stay.
      - Images of C(extraObjects) are used as they are written.
    type: str
"""

    WAIT = r"""
options:
  wait:
    description: Whether to wait, stage by stage, until the operands are ready on the nodes, and to prove it on the
      nodes.
    type: bool
    default: true
  stage_timeout:
    description:
      - Seconds that one stage may take until the run fails with the stage, node, container and cause.
      - The default outlasts a driver that is built from source on the node.
    type: int
    default: 1800
  timeout:
    description: Seconds that the whole run may take.
    type: int
    default: 7200
  lock_wait:
    description:
      - Seconds to wait while another run writes to this cluster. V(0) does not wait.
      - Runs are kept apart by the Lease C(gpufleet) in O(namespace). A run takes it before its first write, and not
        at all when it has nothing to write. A run that was killed does not hold it for longer than a minute.
    type: int
    default: 120
  if_locked:
    description:
      - What to do when another run still writes to this cluster after O(lock_wait).
      - V(fail) fails and names the other run, V(skip) ends without a change and returns the finding V(locked).
    type: str
    choices: [fail, skip]
    default: fail
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
"""

    DRIFT = r"""
options:
  drift:
    description:
      - What to do with fields that somebody else added to objects which the collection made.
      - V(correct) removes them, V(report) leaves them and returns a finding for each. Changed fields are always
        corrected.
    type: str
    choices: [correct, report]
    default: correct
"""

    NODE_GROUPS = r"""
options:
  node_groups:
    description:
      - Settings for groups of nodes, a list of dictionaries with the keys C(name), C(selector), C(mig),
        C(device_plugin), C(taint), C(labels), C(runtime), C(driver), C(ready_gate) and C(hidden_gpus).
      - C(name) is the group's name. C(selector) chooses its nodes by labels, a dictionary of labels or a selector
        such as V(pool=training).
      - C(mig) is the name of a MIG configuration, as the label C(nvidia.com/mig.config) takes it.
      - C(device_plugin) is the name of a device plugin configuration, as the label C(nvidia.com/device-plugin.config)
        takes it.
      - C(taint) is V(true) for the taint C(nvidia.com/gpu:NoSchedule), or a dictionary with C(value) and C(effect).
      - C(labels) are further labels of the nodes.
      - C(runtime) is the nodes' container runtime, one of V(containerd), V(crio), V(docker), V(k3s), V(rke2),
        V(microk8s) and V(k0s), or a dictionary with C(type) and the paths C(config) and C(socket). It is found on
        the nodes by default. Only M(gpufleet.nvidia.cluster_policy) uses it.
      - C(driver) is a driver other than the policy's, a dictionary with C(version), C(flavour) (one of V(auto),
        V(open), V(proprietary)), C(precompiled), C(repository), C(image), or with C(enabled) V(false) where the
        nodes' image brings it. Only M(gpufleet.nvidia.cluster_policy) uses it.
      - C(ready_gate) V(true) keeps pods off a node with the taint C(gpufleet.io/not-ready:NoSchedule) from the first
        run on until the validator has passed it, and while its kubelet refuses pods with GPUs. A taint of this key that
        the node was given at join is taken away as well. Only M(gpufleet.nvidia.cluster_policy) and
        M(gpufleet.nvidia.gpu_nodes) use it.
      - C(hidden_gpus) is a list of GPUs that are kept out of Kubernetes on these nodes, by UUID (C(GPU-...)), PCI
        address (C(0000:18:00.0)) or the exact name of a product (C(NVIDIA H200)). A node that has none of them offers
        no GPU, nor does one that would have none left. It does not go with C(mig), nor with labels of C(nvidia.com/)
        in C(selector). Only M(gpufleet.nvidia.cluster_policy) uses it; a run of it without this key offers the GPUs
        again.
      - A node in two groups whose settings contradict each other is refused.
    type: list
    elements: dict
"""
