# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the way of a policy's operands in a cluster, found before anything is written."""

from __future__ import annotations

import difflib
import posixpath
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .._nodes._hidden import to_text
from .._nodes._keys import WORKLOAD_CONFIG
from .._plan import ERROR, INFO, WARNING, Finding
from .._policy._cuda import newest_for, too_new
from .._policy._model import Env, Policy
from . import _cc_manager, _sandbox_device_plugin, _vfio_manager, _vgpu_device_manager, _vgpu_manager
from ._build import env_sources
from ._dcgm_exporter import METRICS_KEY
from ._driver import LICENCE_KEY, MODULE_PARAMETERS, OS_FOLDERS, TOKEN_KEY, TOPOLOGY_KEY, policy_of, sets
from ._mig_manager import CLIENTS_KEY, CONFIG_KEY
from ._types import ClusterFacts, Object, Operand


class Named(NamedTuple):
    """A ConfigMap or Secret that the policy names but does not hold; ``keys`` are those that must be in it."""

    kind: str
    name: str
    path: str
    keys: Tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"


def problems(policy: Policy, facts: ClusterFacts) -> List[Finding]:
    """All of them, errors and notes, in a fixed order."""
    found: List[Finding] = []
    for check in _CHECKS:
        found += check(policy, facts)
    return found


def named_by(policy: Policy) -> List[Named]:
    """Objects of our namespace that must be there because pods read them."""
    return [item for item in _all_named(policy) if item.name]


def _all_named(policy: Policy) -> Iterator[Named]:
    if policy.driver.enabled and not policy.driver.use_nvidia_driver_crd:
        yield from _named_by_driver(policy)
    plugin, exporter, manager = policy.device_plugin, policy.dcgm_exporter, policy.mig_manager
    if (plugin.enabled or policy.gfd.enabled) and plugin.config.data is None:
        default = (plugin.config.default,) if plugin.config.default else ()
        yield Named("ConfigMap", plugin.config.name, "devicePlugin.config.name", default)
    if exporter.enabled and exporter.config.data is None:
        yield Named("ConfigMap", exporter.config.name, "dcgmExporter.config.name", (METRICS_KEY,))
    if manager.enabled and manager.config.data is None:
        yield Named("ConfigMap", manager.config.name, "migManager.config.name", (CONFIG_KEY,))
    if manager.enabled and manager.gpu_clients_config.data is None:
        name = manager.gpu_clients_config.name
        yield Named("ConfigMap", name, "migManager.gpuClientsConfig.name", (CLIENTS_KEY,))
    if _vgpu_manager.OPERAND.enabled(policy):
        yield Named("ConfigMap", policy.vgpu_manager.kernel_module_config, "vgpuManager.kernelModuleConfig.name")
    if _vgpu_device_manager.OPERAND.enabled(policy):
        name = policy.vgpu_device_manager.config.name
        yield Named("ConfigMap", name, "vgpuDeviceManager.config.name", (CONFIG_KEY,))
    yield from _named_by_env(policy)


def _named_by_env(policy: Policy) -> Iterator[Named]:
    """ConfigMaps and Secrets that variables get their values from; those marked optional may be missing."""
    parts: Dict[str, Env] = {
        "driver.manager": policy.driver.manager.env if policy.driver.enabled else (),
        "validator": policy.validator.env,
        "validator.plugin": policy.validator.plugin_env,
        "validator.cuda": policy.validator.cuda_env,
        "validator.driver": policy.validator.driver_env,
        "validator.toolkit": policy.validator.toolkit_env,
    }
    if policy.sandbox_workloads.enabled:
        parts["validator.vfioPCI"] = policy.validator.vfio_pci_env
        parts["validator.vgpuManager"] = policy.validator.vgpu_manager_env
        parts["validator.vgpuDevices"] = policy.validator.vgpu_devices_env
    for name, operand, of_it in _sandbox_parts(policy):
        parts[name] = of_it if operand.enabled(policy) else ()
    for name, component in (
        ("driver", policy.driver),
        ("toolkit", policy.toolkit),
        ("devicePlugin", policy.device_plugin),
        ("dcgm", policy.dcgm),
        ("dcgmExporter", policy.dcgm_exporter),
        ("gfd", policy.gfd),
        ("migManager", policy.mig_manager),
        ("nodeStatusExporter", policy.node_status_exporter),
        ("gds", policy.gds),
        ("gdrcopy", policy.gdrcopy),
    ):
        parts[name] = component.env if component.enabled else ()
    for name, environment in parts.items():
        for source in env_sources(environment):
            if source.needed:
                yield Named(source.kind, source.name, f"{name}.env", (source.key,))


def _sandbox_parts(policy: Policy) -> Tuple[Tuple[str, Operand, Env], ...]:
    """Parts that serve virtual machines: key of the policy, operand, env."""
    plugins = _sandbox_device_plugin
    vgpu, vfio = policy.vgpu_manager, policy.vfio_manager
    return (
        ("vgpuManager", _vgpu_manager.OPERAND, vgpu.env),
        ("vgpuManager.driverManager", _vgpu_manager.OPERAND, vgpu.driver_manager.env),
        ("vgpuDeviceManager", _vgpu_device_manager.OPERAND, policy.vgpu_device_manager.env),
        ("vfioManager", _vfio_manager.OPERAND, vfio.env),
        ("vfioManager.driverManager", _vfio_manager.OPERAND, vfio.driver_manager.env),
        ("sandboxDevicePlugin", plugins.OPERAND, policy.sandbox_device_plugin.env),
        ("kataSandboxDevicePlugin", plugins.KATA_OPERAND, policy.kata_sandbox_device_plugin.env),
        ("ccManager", _cc_manager.OPERAND, policy.cc_manager.env),
    )


def _named_by_driver(policy: Policy) -> Iterator[Named]:
    driver = policy.driver
    if not driver.use_precompiled:
        yield Named("ConfigMap", driver.repo_config, "driver.repoConfig.configMapName")
        yield Named("ConfigMap", driver.cert_config, "driver.certConfig.name")
    yield Named("ConfigMap", driver.kernel_module_config, "driver.kernelModuleConfig.name")
    yield Named("ConfigMap", driver.virtual_topology_config, "driver.virtualTopology.config", (TOPOLOGY_KEY,))
    yield Named("Secret", driver.secret_env, "driver.secretEnv")
    keys = (LICENCE_KEY, TOKEN_KEY) if driver.licensing.nls_enabled else (LICENCE_KEY,)
    if driver.licensing.secret_name:
        yield Named("Secret", driver.licensing.secret_name, "driver.licensingConfig.secretName", keys)
    else:
        yield Named("ConfigMap", driver.licensing.config_map_name, "driver.licensingConfig.configMapName", keys)


def unused_sizes(policy: Policy, daemonsets: Sequence[Object]) -> List[Finding]:
    """Sizes of containers that no DaemonSet has: a name that is misspelled, or of an operand that is off (L41)."""
    specs = [made["spec"]["template"]["spec"] for made in daemonsets]
    known = sorted({c["name"] for spec in specs for c in [*spec.get("initContainers", []), *spec["containers"]]})
    found = []
    for name in sorted(set(policy.daemonsets.container_resources) - set(known)) if daemonsets else ():
        near = difflib.get_close_matches(name, known, 1)
        remedy = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}."
        path = f"daemonsets.containerResources.{name}"
        found.append(Finding("sizes-unused", ERROR, "is the name of no container.", path=path, remedy=remedy))
    return found


def _missing_objects(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    for item in named_by(policy):
        target = f"{item.kind} {facts.namespace}/{item.name}"
        if item.id not in facts.config_keys:
            detail = f"{target} does not exist."
            yield Finding("config-missing", ERROR, detail, target, item.path, "Create it first, or take the key out.")
            continue
        gone = [key for key in item.keys if key not in facts.config_keys[item.id]]
        if gone:
            present = ", ".join(sorted(facts.config_keys[item.id])) or "none"
            detail = f"{target} has no key {' and no key '.join(gone)}; it has: {present}."
            yield Finding("config-key-missing", ERROR, detail, target, item.path, "Add the key to it.")


def _same_file_twice(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """Two ConfigMaps must not put a file in the same place of the driver's container."""
    driver = policy.driver
    if not driver.enabled or not driver.kernel_module_config:
        return
    taken = []
    if driver.licensing.secret_name or driver.licensing.config_map_name:
        taken.append(posixpath.join(MODULE_PARAMETERS, LICENCE_KEY))
    for key in facts.config_keys.get(f"ConfigMap/{driver.kernel_module_config}", ()):
        place = posixpath.join(MODULE_PARAMETERS, key)
        if place in taken:
            detail = f"its key {key} would be mounted at {place}, where the licence is."
            remedy = "Take the key out of the ConfigMap."
            yield Finding("mount-twice", ERROR, detail, "", "driver.kernelModuleConfig.name", remedy)


def _unknown_os(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    driver = policy.driver
    if not driver.enabled or driver.use_nvidia_driver_crd:
        return
    for node in facts.nodes:
        if node.driver is not None and not node.driver.enabled:
            continue
        own = policy if node.driver is None else policy_of(policy, node.driver)
        missing = _what_is_missing(own, node.os_tag, node.kernel)
        if missing:
            detail = f"has no label {missing} yet: no driver is installed on it."
            remedy = "See that Node Feature Discovery runs on it, then run again."
            yield Finding("node-os-unknown", WARNING, detail, f"Node {node.name}", "", remedy)
    if driver.use_precompiled or not (driver.repo_config or driver.cert_config):
        return
    for _own, group in sets(policy, facts):
        if group.os_id not in OS_FOLDERS:
            key = "driver.repoConfig.configMapName" if driver.repo_config else "driver.certConfig.name"
            detail = f"where {group.os_id} keeps such files is not known; known are {', '.join(sorted(OS_FOLDERS))}."
            yield Finding("os-folders-unknown", ERROR, detail, f"DaemonSet {group.name}", key, "Take the key out.")


def _what_is_missing(policy: Policy, os_tag: str, kernel: str) -> str:
    if not os_tag:
        return "feature.node.kubernetes.io/system-os_release.ID and .VERSION_ID"
    if policy.driver.use_precompiled and not kernel:
        return "feature.node.kubernetes.io/kernel-version.full"
    return ""


def _mixed_runtimes(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """Pods that use GPUs name a runtime class, which CRI-O has by CDI only."""
    kinds = {node.runtime for node in facts.nodes if node.runtime in ("containerd", "docker", "crio")}
    if policy.toolkit.enabled and len(kinds) > 1 and "crio" in kinds and not policy.cdi_enabled:
        detail = f"is off, and nodes run {' and '.join(sorted(kinds))}: CRI-O has the runtime class by CDI only."
        yield Finding("runtimes-mixed", ERROR, detail, "", "cdi.enabled", "Set cdi.enabled to true.")


def _group_drivers(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """What a group asks of its driver and cannot have."""
    drivers = {node.driver for node in facts.nodes if node.driver is not None and node.driver.enabled}
    for driver in sorted(drivers, key=lambda one: one.group):
        target, key = f"node group {driver.group}", "node_groups.driver"
        if not policy.driver.enabled or policy.driver.use_nvidia_driver_crd:
            detail = f"{driver.group} is to have a driver, and the policy installs none."
            yield Finding("groups.driver-off", ERROR, detail, target, key, "Set driver.enabled, or leave the key out.")
        own = policy_of(policy, driver)
        if policy.gds.enabled and own.driver.kernel_module_type != "open":
            detail = (
                f"{driver.group} has the kernel modules {own.driver.kernel_module_type}, and GDS needs the open ones."
            )
            yield Finding("groups.driver-gds", ERROR, detail, target, f"{key}.flavour", "Set flavour to open.")


# Variables that the stack sets after the user's, because other operands depend on them.
_OURS: Dict[str, Tuple[str, ...]] = {
    "gfd": ("MIG_STRATEGY", "CONFIG_FILE"),
    "driver": ("DRIVER_CONFIG_DIGEST",),
    "driver.manager": ("DRIVER_CONFIG_DIGEST",),
    "vgpuDeviceManager": ("DEFAULT_VGPU_CONFIG",),
    "toolkit": ("RUNTIME", "CONTAINERD_RUNTIME_CLASS", "RUNTIME_SOCKET", "RUNTIME_DROP_IN_CONFIG_HOST_PATH"),
}


def _env_without_effect(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    given: Dict[str, Env] = {
        "gfd": policy.gfd.env,
        "driver": policy.driver.env,
        "driver.manager": policy.driver.manager.env,
        "toolkit": policy.toolkit.env,
        "vgpuDeviceManager": policy.vgpu_device_manager.env,
    }
    for key, items in given.items():
        for name in sorted({item["name"] for item in items} & set(_OURS[key])):
            detail = f"{name} has no effect here: it follows from the rest of the policy."
            yield Finding("env-overridden", WARNING, detail, "", f"{key}.env", "Take it out.")


def _driver_probes(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    probes = (("livenessProbe", policy.driver.liveness_probe), ("readinessProbe", policy.driver.readiness_probe))
    for key, probe in probes:
        if policy.driver.enabled and any((probe or {}).values()):
            detail = "the GPU Operator fails on it; here it runs the script of the startup probe."
            yield Finding("driver-probe", INFO, detail, "", f"driver.{key}")


def _vgpu_manager_os(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """The image of the vGPU manager is made for one operating system."""
    mine = _vgpu_manager.nodes_of(policy, facts) if _vgpu_manager.OPERAND.enabled(policy) else []
    tags = _vgpu_manager.os_tags(policy, facts)
    if mine and len(tags) > 1:
        detail = f"is made for one operating system, and nodes with vGPUs run {' and '.join(tags)}."
        remedy = f"Give the nodes of all but one another workload by their label {WORKLOAD_CONFIG}."
        yield Finding("vgpu-os-mixed", ERROR, detail, "", "vgpuManager", remedy)
    elif mine and not tags:
        detail = "is not deployed yet: its nodes have no label of NFD that tells their operating system."
        yield Finding("node-os-unknown", WARNING, detail, "", "vgpuManager", "See that NFD runs, then run again.")


_RUNS = "nvidia.com/cuda.runtime-version.full"  # the CUDA version that a node's driver runs, by feature discovery


def _cuda_too_new(policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """Nodes whose driver is not the policy's: that of their group, or one that was there before."""
    toolkit = policy.cuda_toolkit
    nodes: Dict[str, List[str]] = {}
    for node in facts.nodes if toolkit.enabled else ():
        group = node.driver.version if node.driver is not None and node.driver.enabled else ""
        runs = newest_for(group) if group else "" if policy.driver.enabled else node.labels.get(_RUNS, "")
        if too_new(toolkit.cuda, runs):
            nodes.setdefault(runs, []).append(node.name)
    for runs, chosen in sorted(nodes.items()):
        more = f" and {len(chosen) - 1} more nodes" if len(chosen) > 1 else ""
        detail = f"is {toolkit.cuda}; the driver there runs CUDA up to {runs}."
        remedy = f"Give {'.'.join(runs.split('.')[:2])} or older, or a newer driver."
        yield Finding("cuda-too-new", ERROR, detail, f"Node {chosen[0]}{more}", "cudaToolkit.version", remedy)


_LONGEST_LIST = 900_000  # bytes; etcd takes objects of 1.5 MB, the API server ConfigMaps of 1 MiB


def _hidden_list(_policy: Policy, facts: ClusterFacts) -> Iterator[Finding]:
    """One ConfigMap holds what all nodes hide."""
    size = len(to_text(facts.hidden).encode())
    if size > _LONGEST_LIST:
        most = f"{_LONGEST_LIST} at most are allowed."
        detail = f"make hidden_gpus of {len(facts.hidden)} nodes a list of {size} bytes: {most}"
        remedy = "Make smaller groups, each with the GPUs of its own nodes alone, or name products."
        yield Finding("groups.hidden-too-long", ERROR, detail, "", "node_groups", remedy)


_CHECKS: Tuple[Callable[[Policy, ClusterFacts], Iterator[Finding]], ...] = (
    _missing_objects,
    _same_file_twice,
    _unknown_os,
    _mixed_runtimes,
    _group_drivers,
    _env_without_effect,
    _driver_probes,
    _cuda_too_new,
    _vgpu_manager_os,
    _hidden_list,
)
