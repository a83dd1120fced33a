# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entrance of the policy package: plain data in any of its forms -> typed policy, and every problem at once.

``load`` reads Helm values of the GPU Operator's chart, a ClusterPolicy (object or spec), a GPUClusterPolicy, or a
locked policy. Files are parsed before, on the controller; an entry of ``extraObjects`` that is a text of YAML is parsed
there too (``expand`` fills in its templates first). ``merge`` puts several files over one another. ``canonical`` and
``policy_hash`` are what a run records; ``explain`` is the schema in words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from .._matrix import LATEST, RELEASES, release_named
from .._plan import ERROR, WARNING, Finding, errors
from . import _kinds
from ._build import build
from ._canonical import canonical, policy_hash, restore
from ._explain import explain
from ._kinds import Written, merge
from ._model import Policy
from ._read import Values, chart_defaults, check, resolve
from ._rules import judge
from ._strvals import apply
from ._templates import expand, extra_objects
from ._tree import get, merged, plain, without_nulls

__all__ = ["canonical", "chart_defaults", "expand", "explain", "load", "merge", "policy_hash"]


def load(
    source: Mapping[str, Any],
    *,
    kind: str = "auto",
    set_strings: Sequence[str] = (),
    release: str = "",
    namespace: str = "gpu-operator",
    accept: Iterable[str] = (),
) -> Tuple[Optional[Policy], List[Finding]]:
    """The policy that ``source`` describes, and findings. The policy is None when a finding has severity "error".

    ``kind``: auto, values, clusterpolicy, gpuclusterpolicy, policy. ``set_strings``: strings of Helm's ``--set``, for
    values only. ``release``: release of the GPU Operator whose images are the defaults ("v26.3.1", "25.x", "" is the
    newest). ``namespace``: what templates in ``extraObjects`` get as the release's namespace. ``accept``: ids of
    findings that may not stop the run, among those whose ``accept`` is set.
    """
    name = release_named(str(release))
    if name is None:
        return None, [_unknown_release(str(release))]
    tree, findings = plain(source)
    if findings:
        return None, findings
    if not isinstance(tree, dict):
        return None, [
            Finding(
                "policy.kind", ERROR, "The policy is not a map of keys.", remedy="Give Helm values or a ClusterPolicy."
            )
        ]
    written, findings = _kinds.recognise(tree, kind)
    if written is None:
        return None, findings
    if written.kind == _kinds.LOCKED:
        policy, more = restore(written.tree)
        return policy, findings + _below(written.prefix, more + _no_set_strings(set_strings))
    policy, more = _Reading(written, name, namespace).policy(set_strings)
    findings = [_accepted(finding, set(accept)) for finding in findings + _below(written.prefix, more)]
    return (None if errors(findings) else policy), findings


# Keys whose 0 is no 0: what is used instead, and what to write.
_ZEROES = (
    ("driver.upgradePolicy.maxUnavailable", "25%", 'Write "0%" for no node at all.'),
    ("driver.startupProbe.initialDelaySeconds", "the default", "Write 1."),
)


class _Reading:
    """One policy on its way from plain data to the typed form."""

    def __init__(self, written: Written, release: str, namespace: str) -> None:
        self.tree: Dict[str, Any] = written.tree
        self.kind = written.kind
        self.form = _kinds.CLUSTER_POLICY if written.kind == _kinds.CLUSTER_POLICY else _kinds.VALUES
        self.release = release
        self.namespace = namespace
        self.findings: List[Finding] = []

    def policy(self, set_strings: Sequence[str]) -> Tuple[Policy, List[Finding]]:
        self.findings.extend(self._set(set_strings))
        if self.kind == _kinds.GPU_CLUSTER_POLICY:
            self.tree, more = _kinds.from_gpu_cluster_policy(self.tree)
            self.findings.extend(more)
        checked, bad = check(self.tree, self.form, self.release)
        self.findings.extend(checked)
        values = resolve(self.tree, self.form, self.release, bad)
        objects = self._extra_objects(values)
        policy, about_images = build(values, self.release, objects)
        self.findings.extend(finding for finding in judge(values) + about_images if not _follows(finding, bad))
        self.findings.extend([*self._older_release(), *self._zero()])
        return policy, self.findings

    def _set(self, set_strings: Sequence[str]) -> List[Finding]:
        if self.kind != _kinds.VALUES:
            return _no_set_strings(set_strings)
        findings = apply(self.tree, set_strings)
        self.tree, too_much = plain(self.tree)
        return findings + too_much

    def _extra_objects(self, values: Values) -> Tuple[Dict[str, Any], ...]:
        entries = values["extraObjects"] or []
        if not entries:
            return ()
        whole = without_nulls(merged(chart_defaults(self.release), self.tree))
        objects, findings = extra_objects(entries, self.namespace, whole)
        self.findings.extend(findings)
        return tuple(dict(entry) for entry in objects)

    def _zero(self) -> List[Finding]:
        """Numbers that chart or operator take for nothing: what comes of it is said (L50)."""
        return [
            Finding(
                "policy.zero", WARNING, f"is 0, which counts as not given: {used} is used.", path=path, remedy=remedy
            )
            for path, used, remedy in _ZEROES
            if get(self.tree, path) in (0,) and (self.form == _kinds.VALUES or path.startswith("driver.startup"))
        ]

    def _older_release(self) -> List[Finding]:
        if self.release == LATEST:
            return []
        detail = f"is {self.release}: its images are the defaults; the objects around them are those of {LATEST}."
        remedy = "Try it in practice mode first, or leave release out."
        return [Finding("policy.older-release", WARNING, detail, path="release", remedy=remedy)]


def _unknown_release(name: str) -> Finding:
    remedy = f"Known: {', '.join(RELEASES)}; a shorter name such as 25.x means the newest of them."
    return Finding("policy.release", ERROR, f"is {name[:60]}, which is not known.", path="release", remedy=remedy)


def _no_set_strings(set_strings: Sequence[str]) -> List[Finding]:
    if not set_strings:
        return []
    return [
        Finding(
            "policy.set-values",
            ERROR,
            "are for Helm values only.",
            path="set_values",
            remedy="Write the keys into the policy.",
        )
    ]


def _below(prefix: str, findings: List[Finding]) -> List[Finding]:
    """Paths as they stand in the user's document."""
    outside = ("release", "set_values")
    return [replace(f, path=prefix + f.path) if f.path and f.path not in outside else f for f in findings]


def _accepted(finding: Finding, accept: Set[str]) -> Finding:
    return replace(finding, severity=WARNING) if finding.accept and finding.id in accept else finding


def _follows(finding: Finding, bad: Set[str]) -> bool:
    """True for a finding about a key that is wrong already: one finding a mistake."""
    path = finding.path
    return any(path == key or path.startswith(key + ".") or key.startswith(path + ".") for key in bad)
