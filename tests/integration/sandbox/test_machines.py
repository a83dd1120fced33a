# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs for containers and for virtual machines in one cluster, by one policy."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.integration.sandbox.machines import (
    A10_HALF,
    BOX,
    CC,
    CONTAINER_KEYS,
    H100,
    KATA,
    KUBEVIRT,
    PASS,
    PASSTHROUGH_KEYS,
    VGPU,
    VGPU_KEYS,
    apps,
    deploy_keys,
    host,
    labels,
    offers,
    pod,
    serve,
)


def up(fleet: Any, values: dict[str, Any], **params: Any) -> dict[str, Any]:
    done: dict[str, Any] = fleet.stack(values, **params)
    assert not done["failed"], done["msg"]
    return done


def quiet(fleet: Any, values: dict[str, Any]) -> None:
    """A run after that changes nothing and writes nothing."""
    offset = fleet.offset()
    again = up(fleet, values)
    assert (again["changed"], again["plan"], fleet.writes(offset)) == (False, [], [])


@pytest.mark.rows("SBX-01", "S48", "VAL-09", "VAL-11", "NL-05", "P130")
def test_one_policy_serves_containers_whole_gpus_and_parts_of_them(vms: Any) -> None:
    serve(vms, vm_pass="vm-passthrough", vm_vgpu="vm-vgpu")
    done = up(vms, KUBEVIRT)
    assert {one["name"]: one["ready"] for one in done["found"]["nodes"]} == dict.fromkeys((BOX, PASS, VGPU, CC), True)
    assert offers(vms, BOX) == {"nvidia.com/gpu": "2"}
    assert offers(vms, PASS) == {H100: "2"}
    assert offers(vms, VGPU) == {A10_HALF: "2"}
    assert deploy_keys(vms, BOX) == CONTAINER_KEYS
    assert deploy_keys(vms, PASS) <= PASSTHROUGH_KEYS
    assert deploy_keys(vms, VGPU) <= VGPU_KEYS
    validator, plugin = "nvidia-sandbox-validator", "nvidia-sandbox-device-plugin-daemonset"
    assert apps(vms, PASS) == {validator, plugin, "nvidia-vfio-manager"}
    managers = {"nvidia-vgpu-manager-daemonset", "nvidia-vgpu-device-manager"}
    assert apps(vms, VGPU) == {validator, plugin, *managers}
    assert "nvidia-device-plugin-daemonset" in apps(vms, BOX)
    assert not {validator, plugin, "nvidia-vfio-manager", *managers} & apps(vms, BOX)
    assert host(vms, PASS) == ({"workload-type", "vfio-pci-ready"}, ["vfio-pci", "vfio-pci"])
    assert host(vms, VGPU) == ({"workload-type", "vgpu-manager-ready", "vgpu-devices-ready"}, ["nvidia"])
    files, drivers = host(vms, BOX)
    assert {"driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready"} <= files
    assert drivers == ["nvidia", "nvidia"]
    quiet(vms, KUBEVIRT)


@pytest.mark.rows("SBX-01", "NL-05")
def test_nodes_without_a_label_serve_the_policys_default(vms: Any) -> None:
    serve(vms, box="container", vm_vgpu="vm-vgpu", vm_cc="vm-everything")
    values = {**KUBEVIRT, "sandboxWorkloads": {"enabled": True, "defaultWorkload": "vm-passthrough"}}
    done = up(vms, values)
    assert offers(vms, BOX) == {"nvidia.com/gpu": "2"}
    assert offers(vms, PASS) == {H100: "2"}
    assert offers(vms, CC) == {"nvidia.com/GH100_H100_PCIE": "1"}
    assert [f["target"] for f in done["findings"] if "vm-everything" in f["detail"]] == [CC]
    quiet(vms, values)


@pytest.mark.rows("SBX-01", "SBX-05", "VAL-10", "VAL-11", "S48")
def test_kata_has_whole_gpus_under_one_name_in_the_mode_that_was_asked_for(vms: Any) -> None:
    serve(vms, vm_pass="vm-passthrough", vm_cc="vm-passthrough")
    up(vms, KATA)
    assert (offers(vms, PASS), offers(vms, CC)) == ({"nvidia.com/pgpu": "2"}, {"nvidia.com/pgpu": "1"})
    common = {"nvidia-sandbox-validator", "nvidia-kata-sandbox-device-plugin-daemonset", "nvidia-vfio-manager"}
    assert (apps(vms, PASS), apps(vms, CC)) == (common, {*common, "nvidia-cc-manager"})
    assert [gpu["cc"] for gpu in vms.practice.hosts()[CC]["gpus"]] == ["on"]
    assert host(vms, CC)[0] == {"workload-type", "vfio-pci-ready", "cc-manager-ready", ".cc-manager-ctr-ready"}
    assert labels(vms, CC)["nvidia.com/cc.mode.state"] == "on"
    quiet(vms, KATA)
    # Another mode, by the node's own label: the manager's business, and nothing for a run to do.
    vms.kubectl("label", "node", CC, "nvidia.com/cc.mode=devtools", user="admin")
    state = "--for=jsonpath={.metadata.labels.nvidia\\.com/cc\\.mode\\.state}=devtools"
    vms.kubectl("wait", f"node/{CC}", state, "--timeout=60s")
    up(vms, KATA)
    assert offers(vms, CC) == {"nvidia.com/pgpu": "1"}
    quiet(vms, KATA)


@pytest.mark.rows("SBX-03")
def test_vgpus_of_a_set_of_ones_own_that_the_nodes_label_names(vms: Any) -> None:
    serve(vms, vm_vgpu="vm-vgpu")
    sets = {
        "version": "v1",
        "vgpu-configs": {"quarters": [{"devices": "all", "vgpu-devices": {"A10-6Q": 4}}],
                         "halves": [{"devices": "all", "vgpu-devices": {"A10-12Q": 2}}]},
    }  # fmt: skip
    data = {"config.yaml": yaml.safe_dump(sets)}
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": vms.namespace}}
    up(vms, KUBEVIRT)
    vms.kubectl("apply", "-f", "-", user="admin", text=yaml.safe_dump({**mine, "data": data}))
    vms.kubectl("label", "node", VGPU, "nvidia.com/vgpu.config=quarters", user="admin")
    values = {**KUBEVIRT, "vgpuDeviceManager": {"enabled": True, "config": {"name": "mine", "default": "halves"}}}
    try:
        up(vms, values)
        assert offers(vms, VGPU) == {"nvidia.com/NVIDIA_A10-6Q": "4"}
        quiet(vms, values)
    finally:
        vms.kubectl("delete", "configmap", "mine", "-n", vms.namespace, user="admin")


# -- a node that changes what it is for


@pytest.mark.rows("SBX-01", "NL-05", "VAL-11")
def test_a_node_goes_from_containers_to_virtual_machines_and_back(vms: Any) -> None:
    up(vms, KUBEVIRT)
    serve(vms, box="vm-passthrough")
    up(vms, KUBEVIRT)
    assert offers(vms, BOX) == {"nvidia.com/TU104GL_TESLA_T4": "2"}
    assert host(vms, BOX) == ({"workload-type", "vfio-pci-ready"}, ["vfio-pci", "vfio-pci"])
    assert deploy_keys(vms, BOX) <= PASSTHROUGH_KEYS
    quiet(vms, KUBEVIRT)
    serve(vms, box=None)
    up(vms, KUBEVIRT)
    assert offers(vms, BOX) == {"nvidia.com/gpu": "2"}
    files, drivers = host(vms, BOX)
    assert drivers == ["nvidia", "nvidia"]
    assert "workload-type" not in files
    assert deploy_keys(vms, BOX) == CONTAINER_KEYS
    quiet(vms, KUBEVIRT)


@pytest.mark.rows("SBX-01", "NL-05", "S20")
@pytest.mark.parametrize(
    ("now", "then", "resource"),
    [(None, "vm-passthrough", "nvidia.com/gpu"), ("vm-passthrough", None, "nvidia.com/TU104GL_TESLA_T4")],
)
def test_a_node_keeps_what_it_is_for_while_pods_hold_its_gpus(
    vms: Any, now: str | None, then: str | None, resource: str
) -> None:
    serve(vms, box=now)
    up(vms, KUBEVIRT)
    vms.kubectl("apply", "-f", "-", user="admin", text=pod("holds", BOX, resource))
    vms.kubectl("wait", "pod/holds", "-n", "default", "--for=jsonpath={.status.phase}=Running", "--timeout=30s")
    before, keys = host(vms, BOX), deploy_keys(vms, BOX)
    serve(vms, box=then)
    held = up(vms, KUBEVIRT)
    (finding,) = [f for f in held["findings"] if "default/holds" in f["detail"]]
    assert BOX in finding["target"]
    assert finding["remedy"]
    assert (host(vms, BOX), deploy_keys(vms, BOX)) == (before, keys)
    assert vms.practice.hosts()[BOX]["hurt"] == []
    vms.kubectl("delete", "pod", "holds", "-n", "default", "--force", "--grace-period=0", user="admin")
    up(vms, KUBEVIRT)
    assert deploy_keys(vms, BOX) != keys
    assert resource not in offers(vms, BOX)
    assert offers(vms, BOX)
    quiet(vms, KUBEVIRT)


# -- removal


@pytest.mark.rows("INS-10", "L25", "VAL-11", "S48")
@pytest.mark.parametrize(("values", "node"), [(KUBEVIRT, PASS), (KUBEVIRT, VGPU), (KATA, CC)], ids=[PASS, VGPU, CC])
def test_removal_leaves_no_label_no_object_and_no_status_file(vms: Any, values: dict[str, Any], node: str) -> None:
    serve(vms, **{node.replace("-", "_"): "vm-vgpu" if node == VGPU else "vm-passthrough"})
    up(vms, values)
    assert host(vms, node)[0]
    removed = vms.run("cluster_policy", state="absent")
    assert not removed["failed"], removed["msg"]
    left = {key for key in labels(vms, node) if key.startswith("nvidia.com/")}
    assert left <= {"nvidia.com/gpu.workload.config", "nvidia.com/cc.capable"}
    assert host(vms, node)[0] == set()
    if node != VGPU:
        assert set(host(vms, node)[1]) == {""}
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        named = [one["metadata"]["name"] for one in vms.get(kind, namespace="")]
        assert not [name for name in named if name.startswith("nvidia-")]
    assert not vms.get("DaemonSet")
