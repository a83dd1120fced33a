# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's Kubernetes version against what the collection speaks and the release was validated with (INS-11)."""

from __future__ import annotations

from typing import List

from .._matrix import KUBERNETES_FLOOR, RELEASES, version_parts
from .._plan import ERROR, INFO, WARNING, Finding
from ._world import World


def judge(world: World) -> List[Finding]:
    parts = version_parts(world.kubernetes)[:2]
    if len(parts) < 2:
        detail = f"the API server gives {world.kubernetes!r} as its version, which tells no minor version"
        return [Finding("kubernetes-version-unknown", WARNING, detail, remedy="Compare it with the matrix yourself.")]
    minor, release = f"{parts[0]}.{parts[1]}", world.policy.release
    if parts < version_parts(KUBERNETES_FLOOR):
        detail = f"Kubernetes {minor} is older than {KUBERNETES_FLOOR}, the oldest that this collection works with"
        return [Finding("kubernetes-too-old", ERROR, detail, remedy=f"Upgrade the cluster to {KUBERNETES_FLOOR}.")]
    validated = RELEASES[release].kubernetes if release in RELEASES else ()
    if not validated:
        detail = f"with which Kubernetes versions release {release} was validated is not known"
        return [Finding("kubernetes-range-unknown", INFO, detail)]
    if minor in validated:
        return []
    detail = f"Kubernetes {minor} is not among those that release {release} was validated with: {', '.join(validated)}"
    fits = [name for name, known in RELEASES.items() if minor in known.kubernetes]
    remedy = f"Use release {fits[0]}, or try it on one node first." if fits else "Try it on one node first."
    return [Finding("kubernetes-not-validated", WARNING, detail, remedy=remedy)]
