# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether driver, GPUs, toolkit, DCGM and kernel of each node fit together: the matrix judges, as on hosts (S36)."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Dict, List, Tuple

from .._matrix import ARCHITECTURES, FitSet, Verdict, branch_of, product_named, version_key
from .._matrix import judge as fit
from .._operands._driver import policy_of
from .._operands._types import NodeFacts
from .._plan import WARNING, Finding
from .._policy._model import Component, Policy
from ._world import World, some

PRODUCT = "nvidia.com/gpu.product"
FAMILY = "nvidia.com/gpu.family"
OF_HOST = "nvidia.com/cuda.driver-version.full"
_FAMILIES = {"ada-lovelace": "ada"}
_TOLD_BY_POLICY = ("end_of_life", "branch_unknown")


def judge(world: World) -> List[Finding]:
    nodes: Dict[Verdict, List[str]] = {}
    today = datetime.fromtimestamp(world.now, timezone.utc).strftime("%Y-%m-%d") if world.now else ""
    for node in world.facts.nodes:
        for verdict in fit(_set_of(world.policy, node), today=today):
            if verdict.id not in _TOLD_BY_POLICY or not _has_policys_driver(world.policy, node):
                nodes.setdefault(verdict, []).append(node.name)
    return [_finding(verdict, names) for verdict, names in nodes.items()]


def _finding(verdict: Verdict, names: List[str]) -> Finding:
    severity = WARNING if verdict.accept else verdict.severity
    detail = f"{some(names)}: {verdict.message}"
    remedy = f"The matrix says: {verdict.row}."
    return Finding(f"fit-{verdict.id.replace('_', '-')}", severity, detail, "versions", remedy=remedy)


def _has_policys_driver(policy: Policy, node: NodeFacts) -> bool:
    return policy.driver.enabled and not (node.driver and node.driver.version)


def _set_of(policy: Policy, node: NodeFacts) -> FitSet:
    driver, flavour = _driver(policy, node)
    product = node.labels.get(PRODUCT, "")
    toolkit = _version(policy.toolkit)
    return FitSet(
        driver=driver,
        flavour=flavour,
        architectures=_architectures(node),
        products=(product,) if product else (),
        toolkit={"container-toolkit": toolkit} if toolkit else {},
        dcgm=_version(policy.dcgm_exporter),
        kernel=node.kernel if _is_version(node.kernel) else "",
        os=f"{node.os_id} {node.os_version}",
    )


def _driver(policy: Policy, node: NodeFacts) -> Tuple[str, str]:
    """Version and flavour of a node's driver, "" for what is not known: one of the host tells no flavour."""
    if not policy.driver.enabled or policy.driver.use_nvidia_driver_crd or (node.driver and not node.driver.enabled):
        version, flavour = node.labels.get(OF_HOST, ""), ""
    else:
        own = policy_of(policy, node.driver) if node.driver else policy
        version, flavour = own.driver.image.version, own.driver.kernel_module_type
    return version if branch_of(version) is not None else "", flavour if flavour in ("open", "proprietary") else ""


def _architectures(node: NodeFacts) -> Tuple[str, ...]:
    """What GPU feature discovery says: nothing is known before it has run once."""
    row = product_named(node.labels.get(PRODUCT, ""))
    family = node.labels.get(FAMILY, "")
    name = row.architecture if row else _FAMILIES.get(family, family)
    return (name,) if name in ARCHITECTURES else ()


def _version(component: Component) -> str:
    return component.image.version if component.enabled and _is_version(component.image.version) else ""


def _is_version(text: str) -> bool:
    try:
        return bool(version_key(text))
    except ValueError:
        return False
