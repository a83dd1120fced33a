# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether privileged pods get into our namespace: its pod security label, and the server's own word (P131, STA-04)."""

from __future__ import annotations

from typing import Dict, List

from .._kube._resources import ours
from .._plan import ERROR, INFO, Finding
from ._world import World, some

ENFORCE = "pod-security.kubernetes.io/enforce"
_LABEL = "Label the namespace pod-security.kubernetes.io/enforce=privileged."
_ALLOW = "Set psa.enabled: true, or label the namespace pod-security.kubernetes.io/enforce=privileged."


def judge(world: World) -> List[Finding]:
    where = f"Namespace {world.namespace}"
    if world.live_namespace is None:
        detail = "does not exist yet: whether the cluster lets privileged pods in is seen when it does"
        remedy = "" if world.policy.psa_enabled else "Set psa.enabled: true where namespaces are restricted by default."
        return [Finding("namespace-absent", INFO, detail, where, remedy=remedy)]
    level = str((world.live_namespace["metadata"].get("labels") or {}).get(ENFORCE) or "")
    mended = world.policy.psa_enabled and (ours(world.live_namespace) or not level)
    found = []
    if level not in ("", "privileged") and not mended:
        detail = f"enforces pod security {level!r}: the operands' privileged pods would be refused"
        # A label that somebody else gave is not overwritten.
        remedy = _ALLOW if ours(world.live_namespace) else _LABEL
        found.append(Finding("pod-security", ERROR, detail, where, remedy=remedy))
    return found + _refused(world, bool(found) or mended)


def _refused(world: World, told: bool) -> List[Finding]:
    """What admission says of the operands' own pods, sent as dry runs; quotas are another check's."""
    by_text: Dict[str, List[str]] = {}
    for name, text in sorted(world.admission.items()):
        webhook = "calling webhook" in text  # another check's
        if text and not is_quota(text) and not webhook and not (told and "PodSecurity" in text):
            by_text.setdefault(_without_name(text), []).append(name)
    return [
        Finding(
            "pods-refused",
            ERROR,
            f"the API server would refuse pods of {some(names)}: {text}",
            f"Namespace {world.namespace}",
            remedy=_ALLOW if "PodSecurity" in text else "Change the admission rule, or exempt the namespace from it.",
        )
        for text, names in by_text.items()
    ]


def is_quota(text: str) -> bool:
    """Whether a refusal is a quota's."""
    return "quota" in text


def _without_name(text: str) -> str:
    """The same sentence for each pod: its name, which is no pod's yet, and what differs from pod to pod go."""
    _before, parted, after = text.partition(" is forbidden: ")
    text = after if parted else text
    return text.split(" (", 1)[0] if text.startswith("violates PodSecurity") else text
