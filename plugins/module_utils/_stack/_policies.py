# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of NVIDIA's operator that say what a cluster is to be: which of them count, and what they contradict.

The operator leaves the status of a ClusterPolicy that it ignores empty; here each object is told with its state.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from .._kube._connection import ApiError, Connection
from .._kube._lists import list_objects
from .._kube._resources import Object
from .._nodes._causes import names
from .._nodes._labels import has_gpu
from .._nodes._selector import SelectorError, parse
from .._plan import WARNING, Finding

KINDS = ("ClusterPolicy", "GPUCluster", "NVIDIADriver")
ACTIVE, IGNORED, DISABLED, CONFLICT = "active", "ignored", "disabled", "conflict"


class Found(NamedTuple):
    """Rows of the objects as modules return them, and what is wrong between them."""

    rows: List[Dict[str, Any]]
    findings: List[Finding]


def read_policies(connection: Connection, nodes: Sequence[Object]) -> Found:
    """The objects of a cluster, judged; nothing where the account may not read them."""
    items: List[Object] = []
    for kind in KINDS:
        try:
            items += list_objects(connection, kind, optional=True).items
        except ApiError as error:
            if error.status != 403:
                raise
    return judge(items, nodes)


def judge(items: Sequence[Object], nodes: Sequence[Object] = ()) -> Found:
    """Which objects count: the oldest ClusterPolicy, none beside a GPUCluster, NVIDIADrivers where they are used."""
    policies = sorted((o for o in items if o["kind"] == "ClusterPolicy"), key=_age)
    clusters = [o for o in items if o["kind"] == "GPUCluster"]
    drivers = sorted((o for o in items if o["kind"] == "NVIDIADriver"), key=lambda o: str(o["metadata"]["name"]))
    findings: List[Finding] = []
    rows = []
    both = bool(policies and clusters)
    for number, policy in enumerate(policies):
        rows.append(_row(policy, CONFLICT if both else IGNORED if number else ACTIVE))
    rows += [_row(cluster, CONFLICT if both else ACTIVE) for cluster in clusters]
    if len(policies) > 1:
        findings.append(_several(policies))
    if both:
        findings.append(_both(policies[0], clusters[0]))
    driver = _spec(policies[0]).get("driver") if policies else None
    used = not policies or (isinstance(driver, Mapping) and bool(driver.get("useNvidiaDriverCRD")))
    conflicts = _conflicts(drivers, nodes) if used else []
    findings += conflicts
    state = DISABLED if not used else CONFLICT if conflicts else ACTIVE
    return Found(rows + [_row(driver, state) for driver in drivers], findings)


def _age(policy: Object) -> Tuple[str, str]:
    meta = policy["metadata"]
    return str(meta.get("creationTimestamp") or "9"), str(meta["name"])


def _row(item: Object, counts: str) -> Dict[str, Any]:
    """``state``: what its own status says. Of the pair of conditions the one that is true tells the reason."""
    status = item.get("status") or {}
    told: Mapping[str, Any] = {}
    for condition in status.get("conditions") or []:
        if condition.get("status") == "True" and condition.get("type") in ("Ready", "Error"):
            told = condition
    return {
        "kind": str(item["kind"]),
        "name": str(item["metadata"]["name"]),
        "counts": counts,
        "state": str(status.get("state") or ""),
        "reason": str(told.get("reason") or ""),
        "message": str(told.get("message") or ""),
    }


def _several(policies: Sequence[Object]) -> Finding:
    mine, *others = [str(policy["metadata"]["name"]) for policy in policies]
    detail = f"{len(policies)} ClusterPolicies are there: the oldest counts, {mine}; ignored: {', '.join(others)}"
    return Finding("policies.several", WARNING, detail, f"ClusterPolicy {others[0]}", remedy="Delete those ignored.")


def _both(policy: Object, cluster: Object) -> Finding:
    detail = f"stands beside GPUCluster {cluster['metadata']['name']}: the operator works on neither"
    target = f"ClusterPolicy {policy['metadata']['name']}"
    return Finding("policies.conflict", WARNING, detail, target, remedy="Delete one of the two.")


def _conflicts(drivers: Sequence[Object], nodes: Sequence[Object]) -> List[Finding]:
    """Two defaults, or a node that two selectors choose: the operator then changes no owner of any node."""
    found = []
    default = [str(d["metadata"]["name"]) for d in drivers if _spec(d).get("default")]
    if len(default) > 1:
        detail = f"{len(default)} NVIDIADrivers are default: {', '.join(default)}"
        remedy = "Keep default: true on one of them."
        found.append(Finding("policies.drivers", WARNING, detail, f"NVIDIADriver {default[1]}", remedy=remedy))
    shared: Dict[Tuple[str, ...], List[str]] = {}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        mine = tuple(str(d["metadata"]["name"]) for d in drivers if has_gpu(labels) and _chooses(d, labels))
        if len(mine) > 1:
            shared.setdefault(mine, []).append(str(node["metadata"]["name"]))
    for mine, chosen in sorted(shared.items()):
        detail = f"and {', '.join(mine[1:])} choose the same nodes: {names(chosen)}"
        remedy = "Change one nodeSelector: no driver is given to any node until then."
        found.append(Finding("policies.drivers", WARNING, detail, f"NVIDIADriver {mine[0]}", remedy=remedy))
    return found


def _chooses(driver: Object, labels: Mapping[str, str]) -> bool:
    spec = _spec(driver)
    if spec.get("default"):
        return False
    try:
        return parse({"matchLabels": spec.get("nodeSelector") or {}}).matches(labels)
    except SelectorError:
        return False


def _spec(item: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item.get("spec") or {}
    return found
