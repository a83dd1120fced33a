# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms in which a policy is written: telling them apart, merging several, and our own short GPUClusterPolicy."""

from __future__ import annotations

import difflib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .._matrix import BRANCHES, LAST_FOR_OLD_GPUS, LATEST, OLDEST_CUDA, RELEASES, branch_of, version_parts
from .._plan import ERROR, INFO, WARNING, Finding, errors
from ._plugin_chart import from_plugin_chart, is_other, is_plugin_chart
from ._read import unknown_keys
from ._schema import Key
from ._tree import MISSING, get, merged, plain, put
from ._types import problems

VALUES = "values"
CLUSTER_POLICY = "clusterpolicy"
GPU_CLUSTER_POLICY = "gpuclusterpolicy"
LOCKED = "policy"  # our own canonical form
AUTO = "auto"
KINDS = (AUTO, VALUES, CLUSTER_POLICY, GPU_CLUSTER_POLICY, LOCKED)

LOCK_VERSION = "gpufleet.io/v1"
_BY_OBJECT = {
    ("nvidia.com/v1", "ClusterPolicy"): CLUSTER_POLICY,
    ("gpu.nvidia.com/v1", "GPUClusterPolicy"): GPU_CLUSTER_POLICY,
    (LOCK_VERSION, "Policy"): LOCKED,
}

# A ClusterPolicy must have these, at least empty.
REQUIRED = (
    "daemonsets",
    "dcgm",
    "dcgmExporter",
    "devicePlugin",
    "driver",
    "gfd",
    "nodeStatusExporter",
    "operator",
    "toolkit",
)


class Written(NamedTuple):
    """A policy as written: its form, the map of its keys, and what stands before their paths ("spec.")."""

    kind: str
    tree: Dict[str, Any]
    prefix: str = ""


def recognise(tree: Mapping[str, Any], kind: str) -> Tuple[Optional[Written], List[Finding]]:
    """The form of plain data. None with an error when it is an object of another kind or not the kind asked for."""
    if kind not in KINDS:
        return None, [_wrong("kind", f"is {kind}, allowed is one of {', '.join(KINDS)}.")]
    if "apiVersion" not in tree and "kind" not in tree:
        return _without_header(tree, kind)
    named = (str(tree.get("apiVersion")), str(tree.get("kind")))
    found = _BY_OBJECT.get(named)
    if found is None:
        known = ", ".join(f"{name} ({version})" for version, name in _BY_OBJECT)
        return None, [
            _wrong(
                "kind",
                f"is {named[1][:60]} ({named[0][:60]}), which is no policy.",
                f"Known: {known}; or Helm values.",
            )
        ]
    if kind not in (AUTO, found):
        return None, [_wrong("kind", f"is {named[1]}, but {kind} was asked for.")]
    return _object(tree, found)


def _wrong(path: str, detail: str, remedy: str = "") -> Finding:
    return Finding("policy.kind", ERROR, detail, path=path, remedy=remedy)


def _object(tree: Mapping[str, Any], kind: str) -> Tuple[Optional[Written], List[Finding]]:
    known = ("apiVersion", "kind", "metadata", "spec", "status")
    findings = [
        _wrong(name, f"is unknown: an object has {', '.join(known)}.", _guess(name, known))
        for name in tree
        if name not in known
    ]
    spec = tree.get("spec")
    if spec is None:
        spec = {}
    if not isinstance(spec, Mapping):
        findings.append(_wrong("spec", "is not a map."))
    if findings:
        return None, findings
    written = Written(kind, dict(spec), "spec.")
    return written, _missing_blocks(written) if kind == CLUSTER_POLICY else []


def _missing_blocks(written: Written) -> List[Finding]:
    missing = [name for name in REQUIRED if written.tree.get(name) is None]
    if not missing:
        return []
    detail = f"has no {', '.join(missing)}: the API server refuses such a ClusterPolicy. Read here as if it were empty."
    return [Finding("policy.missing-block", WARNING, detail, path="spec", remedy=f"Add {missing[0]}: {{}}.")]


def _without_header(tree: Mapping[str, Any], kind: str) -> Tuple[Optional[Written], List[Finding]]:
    if kind == LOCKED:
        return None, [_wrong("kind", "is missing.", f"A locked policy begins with apiVersion: {LOCK_VERSION}.")]
    if kind != AUTO:
        return Written(kind, dict(tree)), []
    not_values, not_spec = unknown_keys(tree, VALUES), unknown_keys(tree, CLUSTER_POLICY)
    if len(not_spec) < len(not_values) or (not not_spec and all(name in tree for name in REQUIRED)):
        why = f"it has {not_values[0]}" if not_values else "it has every block that a ClusterPolicy must have"
        note = Finding(
            "policy.read-as", INFO, f"The policy is read as the spec of a ClusterPolicy: {why}.", path="kind"
        )
        return Written(CLUSTER_POLICY, dict(tree)), [note]
    return Written(VALUES, dict(tree)), []


def merge(sources: Sequence[Mapping[str, Any]], namespace: str = "") -> Tuple[Dict[str, Any], List[Finding]]:
    """Several policies over one another, as Helm merges ``-f`` files: maps key by key, lists whole, the last one wins.

    A map without header over an object goes into its spec. Different kinds of objects are refused. Values of the device
    plugin's own chart become values of the operator's: its files are one policy up to the first of another form.
    """
    trees: List[Dict[str, Any]] = []
    findings: List[Finding] = []
    for source in sources:
        tree, problems_of_source = plain(source)
        findings.extend(problems_of_source)
        if not problems_of_source and isinstance(tree, dict):
            trees.append(tree)
    others = [number for number, tree in enumerate(trees) if is_other(tree)]
    first = others[0] if others else len(trees)
    result: Dict[str, Any] = {}
    for tree in trees[:first]:
        result = merged(result, tree)
    if is_plugin_chart(result):
        result, found = from_plugin_chart(result, namespace)
        findings.extend(found)
    for number, tree in enumerate(trees[first:], first + 1):
        result, found = _over(result, tree, number)
        findings.extend(found)
    return result, findings


def _over(under: Dict[str, Any], over: Dict[str, Any], number: int) -> Tuple[Dict[str, Any], List[Finding]]:
    """A policy over another; ``number`` counts policies from 1."""
    if under and _headed(under) and _headed(over):
        if (under.get("apiVersion"), under.get("kind")) != (over.get("apiVersion"), over.get("kind")):
            detail = f"is {over.get('kind')} in policy {number} and {under.get('kind')} before it."
            return under, [_wrong("kind", detail, "Give one kind.")]
        return merged(under, over), []
    if under and _headed(under):
        return merged(under, {"spec": over}), []
    if under and _headed(over):
        return merged({"spec": under}, over), []
    return merged(under, over), []


def _headed(tree: Mapping[str, Any]) -> bool:
    return "apiVersion" in tree or "kind" in tree


# -- GPUClusterPolicy: a kind of ours, not NVIDIA's ----------------------------------------------------------------

_SHORT: Dict[str, Key] = {
    "driver.enabled": Key("driver.enabled", "bool"),
    "driver.version": Key("driver.version", "version"),
    "cuda.enabled": Key("cuda.enabled", "bool"),
    "cuda.version": Key("cuda.version", "version"),
    "devicePlugin.enabled": Key("devicePlugin.enabled", "bool"),
    "migManager.enabled": Key("migManager.enabled", "bool"),
}
_SHORT_TO = {"cuda.enabled": "cudaToolkit.enabled", "cuda.version": "cudaToolkit.version"}


def from_gpu_cluster_policy(spec: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[Finding]]:
    """Helm values of the same meaning, and what is wrong with the spec (S05)."""
    values: Dict[str, Any] = {}
    findings: List[Finding] = []
    for block, content in spec.items():
        known = sorted({path.split(".")[0] for path in _SHORT})
        if block not in known:
            findings.append(_unknown_short(block, known))
        elif content is not None and not isinstance(content, Mapping):
            findings.append(Finding("policy.type", ERROR, "is not a map.", path=block))
        else:
            _read_block(block, content or {}, values, findings)
    if not any(finding.severity == ERROR for finding in findings):
        about = _cuda(spec, values)
        findings.extend(about)
        if errors(about):
            values.pop("cudaToolkit", None)  # one finding a mistake, at the path that was written
    return values, findings


def _read_block(block: str, content: Mapping[str, Any], values: Dict[str, Any], findings: List[Finding]) -> None:
    names = [path.split(".")[1] for path in _SHORT if path.startswith(f"{block}.")]
    for name, value in content.items():
        path = f"{block}.{name}"
        key = _SHORT.get(path)
        if key is None:
            findings.append(_unknown_short(path, [f"{block}.{known}" for known in names]))
            continue
        wrong = problems(key, value)
        findings.extend(Finding("policy.type", ERROR, p.detail, path=path + p.where, remedy=p.remedy) for p in wrong)
        if not wrong and value is not None:
            put(values, _SHORT_TO.get(path, path), value)


def _unknown_short(path: str, known: Sequence[str]) -> Finding:
    remedy = _guess(path, known) or f"Known: {', '.join(known)}. Helm values and a ClusterPolicy have every other key."
    return Finding(
        "policy.unknown-key", ERROR, "is unknown: a GPUClusterPolicy has no such key.", path=path, remedy=remedy
    )


def _guess(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]}?" if close else ""


def _cuda(spec: Mapping[str, Any], values: Mapping[str, Any]) -> List[Finding]:
    """A toolkit is put on nodes where it is switched on. Images bring their own: what counts there is the driver."""
    cuda = spec.get("cuda") or {}
    version = cuda.get("version") or ""
    if cuda.get("enabled") is False or not (cuda.get("enabled") or version):
        return []
    driver = get(values, "driver.version")
    driver = RELEASES[LATEST].images["driver"][2] if driver is MISSING else driver
    branch = branch_of(driver)
    runs = BRANCHES[branch].cuda if branch in BRANCHES else ""
    detail = "puts the toolkit on nodes, for pods to mount; every workload's image may bring its own CUDA."
    if not cuda.get("enabled"):
        detail = "installs nothing on nodes: every workload's image brings its own CUDA."
    if runs:
        detail += f" Driver {driver} runs CUDA up to {runs}."
    findings = [Finding("policy.cuda-in-images", INFO, detail, path="cuda")]
    wanted = version_parts(version)
    if wanted and runs and wanted[:2] > version_parts(runs):
        needed = (
            min(number for number, known in BRANCHES.items() if version_parts(known.cuda) >= wanted[:2])
            if _possible(wanted)
            else 0
        )
        remedy = f"Use driver branch {needed} or newer." if needed else "No driver branch that is known runs it."
        findings.append(
            Finding(
                "policy.driver-too-old",
                ERROR,
                f"is {version}; driver {driver} runs CUDA up to {runs}.",
                path="cuda.version",
                remedy=remedy,
            )
        )
    if wanted and wanted[:2] < OLDEST_CUDA:
        detail = f"is {version}, which has reached its end of life."
        newer = BRANCHES[LAST_FOR_OLD_GPUS].cuda
        remedy = f"Images with it run on a newer driver all the same; build new ones with {newer} or newer."
        findings.append(Finding("policy.cuda-end-of-life", WARNING, detail, path="cuda.version", remedy=remedy))
    return findings


def _possible(wanted: Tuple[int, ...]) -> bool:
    return any(version_parts(known.cuda) >= wanted[:2] for known in BRANCHES.values())
