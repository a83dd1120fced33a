# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is paused around a new MIG layout of its host, and is afterwards as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes import _mig_pause
from ansible_collections.gpufleet.nvidia.plugins.module_utils._nodes._mig_pause import (
    FAILED,
    MEMORY,
    PAUSED,
    PENDING,
    PROBLEM,
    REBOOTING,
    SUCCESS,
    Patch,
    clients,
    owner,
    pause,
    resume,
    validators,
)

DEPLOY = "nvidia.com/gpu.deploy."
STATE = "nvidia.com/mig.config.state"


def node(cordoned: bool = False, notes: dict[str, str] | None = None, **deploy: str) -> dict[str, Any]:
    """A node; ``device_plugin="true"`` is its label gpu.deploy.device-plugin."""
    labels = {DEPLOY + name.replace("_", "-"): value for name, value in deploy.items()}
    meta = {"name": "gpu-07", "labels": {"kubernetes.io/os": "linux", **labels}, "annotations": dict(notes or {})}
    return {"metadata": meta, "spec": {"unschedulable": True} if cordoned else {}}


def patched(live: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """The node after a merge patch, as the API server makes it."""
    body, meta = patch.body(), live["metadata"]
    made = {"metadata": dict(meta), "spec": {**live["spec"], **body.get("spec", {})}}
    for part in ("labels", "annotations"):
        both = {**meta[part], **body.get("metadata", {}).get(part, {})}
        made["metadata"][part] = {key: value for key, value in both.items() if value is not None}
    made["spec"] = {key: value for key, value in made["spec"].items() if value is not None}
    return made


def deploy(live: dict[str, Any]) -> dict[str, str]:
    return {key[len(DEPLOY) :]: value for key, value in live["metadata"]["labels"].items() if key.startswith(DEPLOY)}


@pytest.mark.rows("MH-02", "P063")
@pytest.mark.parametrize(
    ("was", "while_paused", "afterwards"), [("", PAUSED, "true"), ("true", PAUSED, "true"), ("false", "false", "false")]
)
def test_labels_are_paused_and_come_back(was: str, while_paused: str, afterwards: str) -> None:
    paused = patched(node(device_plugin=was, dcgm="true"), pause(node(device_plugin=was, dcgm="true")))
    assert deploy(paused) == {"device-plugin": while_paused, "dcgm": PAUSED}
    back = patched(paused, resume(paused, SUCCESS))
    assert deploy(back) == {"device-plugin": afterwards, "dcgm": "true"}
    assert back["metadata"]["annotations"] == {}
    assert back["spec"] == {}


@pytest.mark.rows("MH-02")
def test_labels_that_are_not_there_and_those_of_others_stay() -> None:
    paused = patched(node(driver="true"), pause(node(driver="true")))
    assert deploy(paused) == {"driver": "true"}
    everything = dict.fromkeys(
        ("device_plugin", "gpu_feature_discovery", "dcgm_exporter", "dcgm", "nvsm", "client"), "true"
    )
    paused = patched(node(**everything), pause(node(**everything)))
    assert set(deploy(paused).values()) == {PAUSED}


@pytest.mark.rows("MH-02", "P082")
def test_the_node_is_cordoned_and_an_admins_cordon_stays() -> None:
    paused = patched(node(), pause(node()))
    assert paused["spec"] == {"unschedulable": True}
    assert patched(paused, resume(paused, SUCCESS))["spec"] == {}
    paused = patched(node(cordoned=True), pause(node(cordoned=True)))
    assert patched(paused, resume(paused, SUCCESS))["spec"] == {"unschedulable": True}


@pytest.mark.rows("MH-02")
def test_a_run_after_a_killed_one_remembers_what_was_there_before_the_first() -> None:
    paused = patched(node(device_plugin="true"), pause(node(device_plugin="true")))
    again = pause(paused)
    assert again.body() == {}
    paused["metadata"]["labels"][DEPLOY + "dcgm"] = "true"  # somebody adds one meanwhile
    paused = patched(paused, pause(paused))
    assert json.loads(paused["metadata"]["annotations"][MEMORY]) == {
        "cordoned": True,
        "labels": {DEPLOY + "dcgm": "true", DEPLOY + "device-plugin": "true"},
    }
    assert deploy(patched(paused, resume(paused, SUCCESS))) == {"dcgm": "true", "device-plugin": "true"}


@pytest.mark.rows("MH-02")
def test_what_somebody_changed_meanwhile_stays() -> None:
    paused = patched(node(device_plugin="true", dcgm="true"), pause(node(device_plugin="true", dcgm="true")))
    paused["metadata"]["labels"][DEPLOY + "dcgm"] = "false"
    paused["spec"] = {}
    back = resume(paused, SUCCESS)
    assert back.cordon is None
    assert deploy(patched(paused, back)) == {"dcgm": "false", "device-plugin": "true"}


@pytest.mark.rows("MH-03", "P081")
def test_the_state_label_says_how_far_it_is_and_the_reason_of_a_failure_is_told() -> None:
    paused = patched(node(device_plugin="true"), pause(node(device_plugin="true")))
    assert paused["metadata"]["labels"][STATE] == PENDING
    rebooting = patched(paused, pause(paused, REBOOTING))
    assert rebooting["metadata"]["labels"][STATE] == REBOOTING
    failed = patched(rebooting, resume(rebooting, FAILED, "GPU 0: 3 x 3g.40gb do not fit"))
    assert (failed["metadata"]["labels"][STATE], deploy(failed)) == (FAILED, {"device-plugin": "true"})
    assert failed["metadata"]["annotations"] == {PROBLEM: "GPU 0: 3 x 3g.40gb do not fit"}
    assert PROBLEM not in patched(failed, pause(failed))["metadata"]["annotations"]
    done = patched(failed, resume(failed, SUCCESS))
    assert (done["metadata"]["labels"][STATE], done["metadata"]["annotations"]) == (SUCCESS, {})


@pytest.mark.rows("MH-03")
def test_a_layout_that_is_there_already_changes_no_label_but_the_state() -> None:
    live = node(device_plugin="true")
    assert resume(live, SUCCESS).body() == {"metadata": {"labels": {STATE: SUCCESS}}}
    live["metadata"]["labels"][STATE] = SUCCESS
    assert resume(live, SUCCESS).body() == {}


def test_a_memory_that_cannot_be_read_gives_nothing_back_and_breaks_nothing() -> None:
    for text in ("{", "[]", '{"labels": 1}', "[" * 99999):
        live = node(notes={MEMORY: text}, device_plugin=PAUSED)
        back = patched(live, resume(live, FAILED))
        assert (deploy(back), back["metadata"]["annotations"]) == ({"device-plugin": PAUSED}, {})


def test_a_plan_tells_what_a_person_cares_about() -> None:
    told = [(one.verb, one.id, one.before, one.after, one.disruptive) for one in pause(node(dcgm="true")).actions()]
    assert told == [
        ("label", f"Node/gpu-07:{DEPLOY}dcgm", "true", PAUSED, False),
        ("label", f"Node/gpu-07:{STATE}", None, PENDING, False),
        ("cordon", "Node/gpu-07:cordon", False, True, True),
    ]


def pod(
    name: str, app: str = "", selector: dict[str, str] | None = None, owned: str = "", namespace: str = "ns"
) -> dict[str, Any]:
    owners = [{"kind": owned, "controller": True}] if owned else []
    meta = {"name": name, "namespace": namespace, "labels": {"app": app}, "ownerReferences": owners}
    return {"metadata": meta, "spec": {"nodeSelector": selector or {}}}


@pytest.mark.rows("MH-02")
def test_clients_are_known_by_their_app_and_by_the_selector_of_others() -> None:
    pods = [
        pod("a", "nvidia-device-plugin-daemonset"),
        pod("b", "nvidia-dcgm-exporter"),
        pod("c", "own", {DEPLOY + "client": "true"}),
        pod("d", "own"),
        pod("e", "nvidia-operator-validator"),
    ]
    live = node(device_plugin=PAUSED, dcgm_exporter="false", client=PAUSED)
    assert clients(live, pods) == ["ns/a", "ns/c"]
    assert clients(node(device_plugin="true"), pods) == []
    listed = [*pods, pod("f", _mig_pause.VALIDATORS[0])]
    assert [one["metadata"]["name"] for one in validators(listed, "ns")] == ["f"]
    assert [owner(pod("x", owned=kind)) for kind in ("", "DaemonSet")] == ["", "DaemonSet"]


@pytest.mark.rows("MH-02", "S20")
def test_a_users_pod_with_the_label_of_a_validator_is_not_deleted() -> None:
    users = pod("train", _mig_pause.VALIDATORS[0], namespace="team")
    assert validators([users, pod("f", _mig_pause.VALIDATORS[0])], "ns") == [pod("f", _mig_pause.VALIDATORS[0])]
