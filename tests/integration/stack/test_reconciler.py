# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconciler: its objects are accepted, and its account can do a run's whole work and nothing else (S42)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import ApiError, Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._reconciler._objects import FILES, NAME
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.integration.fleets import Fleet
from ansible_collections.gpufleet.nvidia.tests.integration.karpenter import karpenter_in
from ansible_collections.gpufleet.nvidia.tests.testbed import audit
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.policy.test_node_pools import example

IMAGE = "registry.example.com/gpufleet-ee:1.0"
HOME = "gpufleet"
USER = f"system:serviceaccount:{HOME}:{NAME}"
ROLES = ("ClusterRole", "Role")
# What every account may do, by the roles that Kubernetes brings.
EVERYBODY = ("selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "")


@pytest.fixture
def running(facts: Fleet) -> Iterator[Fleet]:
    """A fleet whose stack is up, with the reconciler installed; other tests share the fleet, and find it without."""
    result = facts.stack({})
    assert not result["failed"], result["msg"]
    installed = facts.run("reconciler", image=IMAGE)
    assert not installed["failed"], installed["msg"]
    yield facts
    gone = facts.run("reconciler", state="absent")
    assert not gone["failed"], gone["msg"]


@pytest.fixture
def account(running: Fleet, tmp_path: Path) -> str:
    """A kubeconfig of the reconciler's account."""
    token = running.kubectl("-n", HOME, "create", "token", NAME, user="admin").strip()
    config = yaml.safe_load(running.practice.cluster.kubeconfig("admin").read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    file = tmp_path / "account.yaml"
    file.write_text(yaml.safe_dump(config))
    return str(file)


def requests(fleet: Fleet, since: int) -> list[audit.Request]:
    return list(audit.requests(fleet.practice.cluster.audit_log, USER, since))


def denied(fleet: Fleet, since: int) -> list[str]:
    return [str(request) for request in requests(fleet, since) if request.code in (401, 403)]


def rules(fleet: Fleet, kind: str) -> list[dict[str, Any]]:
    where = "" if kind == "ClusterRole" else fleet.namespace
    found: list[dict[str, Any]] = fleet.get(kind, NAME, where)["rules"]
    return found


@pytest.mark.rows("S42")
def test_installing_again_changes_nothing_and_removal_leaves_nothing(running: Fleet) -> None:
    offset = running.offset()
    again = running.run("reconciler", image=IMAGE)
    assert (again["changed"], again["found"]["installed"], running.writes(offset)) == (False, True, [])
    refused = running.run("cluster_policy", state="absent")
    assert f"CronJob {HOME}/{NAME}" in refused["msg"]
    assert running.writes(offset) == []
    assert running.run("reconciler", state="absent")["changed"]
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        assert running.get(kind, NAME, "") is None
    assert running.get("Role", NAME) is None
    assert running.get("Namespace", HOME, "") is None


def test_check_mode_of_a_removal_tells_of_the_schedule_and_goes_on(running: Fleet) -> None:
    planned = running.run("cluster_policy", state="absent", check=True)
    assert not planned["failed"], planned["msg"]
    assert [f["severity"] for f in planned["findings"] if f["id"] == "reconciler-runs"] == ["warning"]
    assert planned["plan"]


@pytest.mark.rows("S47")
def test_what_a_run_is_given_reaches_the_run_inside(running: Fleet) -> None:
    given = {"image_registry": "mirror.example.com/gpu", "max_failed_nodes": "5%", "release": "v26.3.1"}
    installed = running.run("reconciler", image=IMAGE, set_values=["dcgm.enabled=true"], **given)
    assert not installed["failed"], installed["msg"]
    text = running.get("ConfigMap", NAME, HOME)["data"]["inventory.yaml"]
    inside = yaml.safe_load(text.replace("!unsafe ", ""))["gpu_clusters"]["hosts"]["this-cluster"]
    assert {name: inside[f"cluster_policy_{name}"] for name in given} == given
    assert inside["cluster_policy_set_values"] == ["dcgm.enabled=true"]


@pytest.mark.rows("S42")
def test_after_a_change_of_policy_its_account_can_take_the_old_away(running: Fleet, account: str) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "one"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "none"}}},
    }
    before = running.stack({"operator": {"runtimeClass": "nvidia-old"}, "extraObjects": [budget]})
    assert not before["failed"], before["msg"]
    assert not running.run("reconciler", image=IMAGE)["failed"]
    offset = running.offset()
    after = running.stack({}, kubeconfig=account, all_namespaces=False)
    assert not after["failed"], after["msg"]
    assert denied(running, offset) == []
    assert running.get("RuntimeClass", "nvidia-old", "") is None
    assert running.get("PodDisruptionBudget", "one") is None


@pytest.mark.rows("S27", "S42")
def test_its_account_makes_changes_and_removes_node_pools_of_the_policy(running: Fleet, account: str) -> None:
    mine = {"kubeconfig": account, "all_namespaces": False}
    with karpenter_in(running):
        objects = example()
        installed = running.run("reconciler", image=IMAGE, policy={"extraObjects": objects})
        assert not installed["failed"], installed["msg"]
        offset = running.offset()
        for limit in (64, 8):
            objects[0]["spec"]["limits"]["nvidia.com/gpu"] = limit
            done = running.stack({"extraObjects": objects}, **mine)
            assert not done["failed"], done["msg"]
            assert running.get("NodePool", "gpu", "")["spec"]["limits"] == {"nvidia.com/gpu": limit}
        # The policy is without them now: what there is of the earlier one is this account's to remove.
        assert not running.run("reconciler", image=IMAGE)["failed"]
        gone = running.stack({}, **mine)
        assert not gone["failed"], gone["msg"]
        assert running.get("NodePool", "gpu", "") is None
        assert denied(running, offset) == []


def test_a_cron_job_of_the_policy_is_no_schedule_of_ours(running: Fleet) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example.com/report:1"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "report"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    assert not running.stack({"extraObjects": [job]})["failed"]
    assert not running.run("reconciler", state="absent")["failed"]
    removed = running.run("cluster_policy", state="absent")
    assert not removed["failed"], removed["msg"]


def test_without_the_operands_namespace_it_is_refused(facts: Fleet) -> None:
    facts.empty()
    refused = facts.run("reconciler", image=IMAGE)
    assert "Run gpufleet.nvidia.site once" in refused["msg"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("image", None, "image: is missing"),
        ("schedule", "every minute", "schedule: is 'every minute'"),
        ("watch", -1, "watch: is -1"),
        ("own_namespace", "gpu-operator", "own_namespace: is gpu-operator"),
        ("policy", {"drvier": {}}, "drvier"),
        ("node_groups", [{"name": "a", "selektor": "b"}], "selektor"),
    ],
)
def test_bad_input_is_refused_with_the_key(running: Fleet, option: str, value: Any, says: str) -> None:
    offset = running.offset()
    refused = running.run("reconciler", **{"image": IMAGE, option: value})
    assert says in refused["msg"]
    assert running.writes(offset) == []


def test_the_cluster_admits_the_pod_of_a_run(running: Fleet) -> None:
    """Its namespace enforces the restricted profile of pod security."""
    running.kubectl("-n", HOME, "create", "job", "now", f"--from=cronjob/{NAME}", user="admin")
    running.kubectl("-n", HOME, "wait", "--for=create", "pod", "-l", "job-name=now", "--timeout=20s")
    [pod] = [p for p in running.get("Pod", namespace=HOME) if p["metadata"]["labels"].get("job-name") == "now"]
    running.kubectl("-n", HOME, "delete", "job", "now", user="admin")
    assert pod["spec"]["serviceAccountName"] == NAME
    assert pod["spec"]["containers"][0]["image"] == IMAGE


@pytest.mark.long
@pytest.mark.rows("S42")
def test_its_account_can_do_all_the_work_and_every_rule_is_needed(running: Fleet, account: str) -> None:
    running.own_namespace()
    assert not running.run("reconciler", image=IMAGE)["failed"]
    token = running.kubectl("-n", HOME, "create", "token", NAME, user="admin").strip()
    config = yaml.safe_load(Path(account).read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    Path(account).write_text(yaml.safe_dump(config))
    offset = running.offset()
    everything = {
        "gdrcopy": {"enabled": True},
        "nodeStatusExporter": {"enabled": True},
        "dcgm": {"enabled": True},
    }
    mine = {"kubeconfig": account, "all_namespaces": False}
    for values in (everything, {"nfd": {"nodefeaturerules": True}}, {"cdi": {"enabled": False}}, {}):
        result = running.stack(values, **mine)
        assert not result["failed"], result["msg"]
    before = running.offset()
    assert running.stack({}, **mine)["changed"] is False
    assert [str(r) for r in requests(running, before) if r.is_write] == []
    running.control(nodes={"*": {"no_handler": True}})
    failed = running.stack({"dcgmExporter": {"env": [{"name": "A", "value": "b"}]}}, stage_timeout=8, **mine)
    assert "runtime" in failed["msg"]
    assert denied(running, offset) == []
    sent = [r for r in requests(running, offset) if r.resource not in EVERYBODY]
    roles = {kind: rules(running, kind) for kind in ROLES}
    unneeded = []
    for kind in ROLES:
        for rule in roles[kind]:
            rest = {k: [r for r in roles[k] if k != kind or r is not rule] for k in ROLES}
            if all(allowed(rest, running.namespace, request) for request in sent) and not grants(running, rule, rest):
                unneeded.append(f"{kind}: {json.dumps(rule)}")
    assert unneeded == []
    running.empty()
    running.kubectl("delete", "namespace", running.namespace, "--timeout=60s", user="admin")


def allowed(roles: dict[str, list[dict[str, Any]]], namespace: str, request: audit.Request) -> bool:
    """Whether the rules allow a request, as the API server judges it."""
    here = [*roles["ClusterRole"], *(roles["Role"] if request.namespace == namespace else [])]
    return any(
        request.verb in rule["verbs"]
        and request.resource in rule["resources"]
        and (not rule.get("resourceNames") or request.name in rule["resourceNames"])
        for rule in here
    )


def grants(fleet: Fleet, rule: dict[str, Any], rest: dict[str, list[dict[str, Any]]]) -> bool:
    """Whether a role that a run makes grants what this rule allows and no other rule does."""
    for kind, others in (("ClusterRole", rest["ClusterRole"]), ("Role", [*rest["ClusterRole"], *rest["Role"]])):
        for role in fleet.get(kind, namespace="" if kind == "ClusterRole" else None):
            made = role["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "gpufleet"
            for granted in pieces(role.get("rules") or []) if made and role["metadata"]["name"] != NAME else []:
                if covers([rule], granted) and not covers(others, granted):
                    return True
    return False


def pieces(rules_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rules of one verb on one kind each."""
    return [
        {"apiGroups": [group], "resources": [kind], "verbs": [verb], "resourceNames": rule.get("resourceNames")}
        for rule in rules_
        for group in rule["apiGroups"]
        for kind in rule["resources"]
        for verb in rule["verbs"]
    ]


def covers(rules_: list[dict[str, Any]], granted: dict[str, Any]) -> bool:
    """Whether one of the rules allows a piece of a role."""
    return any(
        (not rule.get("resourceNames") or set(granted["resourceNames"] or ["-"]) <= set(rule["resourceNames"]))
        and all(set(granted.get(key) or []) <= set(rule.get(key) or []) for key in ("apiGroups", "resources", "verbs"))
        for rule in rules_
    )


@pytest.mark.rows("S42")
@pytest.mark.parametrize(("kind", "resource"), [("ClusterRole", "nodes"), ("Role", "daemonsets"), ("Role", "events")])
def test_without_a_rule_a_run_fails_and_names_the_right(running: Fleet, account: str, kind: str, resource: str) -> None:
    where = ["-n", running.namespace] if kind == "Role" else []
    role = running.get(kind, NAME, running.namespace if where else "")
    role["rules"] = [rule for rule in role["rules"] if resource not in rule["resources"]]
    running.kubectl(*where, "replace", "-f", "-", user="admin", text=json.dumps(role))
    running.control(nodes={"*": {"no_handler": True}})
    result = running.stack(
        {"dcgmExporter": {"env": [{"name": "A", "value": resource}]}},
        kubeconfig=account,
        all_namespaces=False,
        stage_timeout=20,
    )
    assert result["failed"]
    assert resource in result["msg"]
    assert "lacks this right" in result["msg"] or "the account may not" in result["msg"]
    assert not running.run("reconciler", image=IMAGE)["failed"]


@pytest.mark.rows("S42", "S30")
def test_rights_that_its_account_lacks_are_all_named_before_anything_is_written(running: Fleet, account: str) -> None:
    lost = {"daemonsets": "patch", "events": "list", "leases": "update"}
    role = running.get("Role", NAME, running.namespace)
    for rule in role["rules"]:
        verb = next((lost[name] for name in rule["resources"] if name in lost), "")
        rule["verbs"] = [one for one in rule["verbs"] if one != verb]
    running.kubectl("-n", running.namespace, "replace", "-f", "-", user="admin", text=json.dumps(role))
    mine = {"kubeconfig": account, "all_namespaces": False}
    offset = running.offset()
    assert running.stack({}, **mine)["plan"] == []
    asked = [str(r) for r in requests(running, offset) if "selfsubject" in r.resource]
    assert asked == []
    result = running.stack({"dcgmExporter": {"env": [{"name": "A", "value": "c"}]}}, **mine)
    assert result["failed"]
    missing = {finding["target"]: finding["detail"] for finding in result["findings"] if finding["severity"] == "error"}
    where = f" in namespace {running.namespace}"
    assert set(missing) == {
        f"daemonsets.apps{where}", f"events{where}", f"leases.coordination.k8s.io{where}",
    }  # fmt: skip
    assert missing[f"daemonsets.apps{where}"].startswith("the account may not patch ")
    assert [str(r) for r in requests(running, offset) if r.is_write] == []
    assert denied(running, offset) == []
    assert not running.run("reconciler", image=IMAGE)["failed"]
    assert not running.stack({}, **mine)["failed"]


@pytest.mark.rows("S42")
def test_its_account_reads_no_secrets_and_cannot_gain_rights(running: Fleet, account: str) -> None:
    connection = Connection.open({"kubeconfig": account})
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    own = {"kind": "ServiceAccount", "name": NAME, "namespace": HOME}
    binding = {"kind": "RoleBinding", "metadata": {"name": "more"}, "roleRef": admin, "subjects": [own]}
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    role = {"apiVersion": rbac[6:], "kind": "Role", "metadata": {"name": "more"}, "rules": [secrets]}
    wider = [*rules(running, "ClusterRole"), {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    own_role = {"apiVersion": rbac[6:], "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": wider}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    tries: list[tuple[str, str, Any]] = [
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/kube-system/secrets", None),
        ("GET", f"/api/v1/namespaces/{running.namespace}/secrets", None),
        ("GET", "/api/v1/configmaps", None),
        ("POST", f"{rbac}/namespaces/{running.namespace}/rolebindings", {"apiVersion": rbac[6:], **binding}),
        ("POST", f"{rbac}/namespaces/{running.namespace}/roles", role),
        ("PUT", f"{rbac}/clusterroles/{NAME}", own_role),
        ("POST", "/api/v1/namespaces/kube-system/pods", pod),
        ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token", {"kind": "TokenRequest"}),
    ]  # fmt: skip
    for method, path, body in tries:
        with pytest.raises(ApiError) as refused:
            connection.request(method, path, body=body)
        assert refused.value.status == 403, path


@pytest.mark.rows("S42")
def test_the_playbook_runs_with_its_files_and_takes_templates_as_text(running: Fleet, tmp_path: Path) -> None:
    """As in the pod, but for the folder of its files and the way to the API server."""
    hostile = "{{ lookup('pipe', 'touch hostile') }}"
    values = {"dcgmExporter": {"env": [{"name": "MARK", "value": hostile}]}}
    groups = [{"name": hostile, "selector": {"no-such": "label"}, "labels": {"a": "b"}}]
    installed = running.run("reconciler", image=IMAGE, policy=values, node_groups=groups, watch=1)
    assert not installed["failed"], installed["msg"]
    token = running.kubectl("-n", HOME, "create", "token", NAME, user="admin").strip()
    config = yaml.safe_load(running.practice.cluster.kubeconfig("admin").read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    for name, text in running.get("ConfigMap", NAME, HOME)["data"].items():
        (tmp_path / name).write_text(text.replace(FILES, str(tmp_path)))
    offset = running.offset()
    program = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [program, "-i", tmp_path / "inventory.yaml", CHECKOUT / "playbooks/reconcile.yml"],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)},
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert denied(running, offset) == []
    assert not (tmp_path / "hostile").exists()
    made = running.get("DaemonSet", "nvidia-dcgm-exporter")
    assert {"name": "MARK", "value": hostile} in made["spec"]["template"]["spec"]["containers"][0]["env"]
