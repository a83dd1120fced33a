# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission webhooks that would fail our objects: dead, or with a certificate that has ended (S38)."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from .._kube._resources import Object, resource
from .._nodes._selector import parse
from .._plan import ERROR, WARNING, Finding
from ._certificates import BadCertificate, ends
from ._world import World, some

_NAME = "kubernetes.io/metadata.name"
_CERT_MANAGER = re.compile(r"(^|/)cert-manager-controller(?=[:@]|$)")


class Target(NamedTuple):
    """Something that a run writes: where it is served, and its labels."""

    group: str
    plural: str
    namespaced: bool
    labels: Tuple[Tuple[str, str], ...] = ()


def judge(world: World) -> List[Finding]:
    targets, space = _targets(world), _namespace_labels(world)
    found = []
    for config in world.webhooks:
        for hook in config.get("webhooks") or []:
            if hook.get("failurePolicy") == "Ignore":
                continue
            covered = covers(hook, targets, space)
            why = _broken(hook, world) if covered else ""
            if why:
                target = f"{config['kind']} {config['metadata']['name']}"
                detail = f"webhook {hook.get('name')} {why}; requests for {some(covered)} of this stack would fail"
                remedy = "Mend or remove it, or exempt the namespace by its namespaceSelector."
                found.append(Finding("webhook-dead", ERROR, detail, target, remedy=remedy))
    if not found:
        found = _by_dry_run(world)
    return found + _managers(world)


def _by_dry_run(world: World) -> List[Finding]:
    """A webhook whose failure only a request shows, such as one behind a URL."""
    texts = [text for _name, text in sorted(world.admission.items()) if "calling webhook" in text]
    if not texts:
        return []
    remedy = "Mend or remove it, or exempt the namespace by its namespaceSelector."
    return [Finding("webhook-dead", ERROR, texts[0], f"Namespace {world.namespace}", remedy=remedy)]


def service_of(hook: Mapping[str, Any]) -> Optional[Tuple[str, str]]:
    """Namespace and name of the service that a webhook calls; None where it calls a URL."""
    service = (hook.get("clientConfig") or {}).get("service")
    return (str(service["namespace"]), str(service["name"])) if service else None


def _broken(hook: Mapping[str, Any], world: World) -> str:
    service = service_of(hook)
    if service is not None:
        name, ready = "/".join(service), world.services.get(service)
        if ready is None:
            return f"calls the service {name}, which does not exist"
        if not ready:
            return f"calls the service {name}, which has no ready endpoints"
    bundle = str((hook.get("clientConfig") or {}).get("caBundle") or "")
    if not bundle:
        return "has no caBundle yet" if service is not None else ""
    try:
        expired = max(ends(bundle)) < world.now
    except BadCertificate as error:
        return f"has a caBundle that {error}"
    return "has a caBundle whose certificates have all expired" if expired else ""


def _targets(world: World) -> Set[Target]:
    """What a run writes, and the pods that follow from it."""
    found = {Target("", "nodes", False), Target("", "namespaces", False)}
    for made in world.wanted:
        at = resource(made["kind"])
        found.add(Target(at.group, at.plural, at.namespaced, _pairs(made["metadata"])))
        if made["kind"] in ("DaemonSet", "Deployment"):
            found.add(Target("", "pods", True, _pairs(made["spec"]["template"]["metadata"])))
    return found


def _pairs(meta: Mapping[str, Any]) -> Tuple[Tuple[str, str], ...]:
    return tuple(sorted((meta.get("labels") or {}).items()))


def _namespace_labels(world: World) -> Dict[str, str]:
    live = (world.live_namespace or {}).get("metadata", {}).get("labels") or {}
    made: Iterable[Object] = (o for o in world.wanted if o["kind"] == "Namespace")
    own = {k: v for o in made for k, v in (o["metadata"].get("labels") or {}).items()}
    return {**own, **live, _NAME: world.namespace}


def covers(hook: Mapping[str, Any], targets: Iterable[Target], namespace: Mapping[str, str]) -> List[str]:
    """Plurals of what a webhook is asked about among the targets, sorted."""
    in_namespace = parse(hook.get("namespaceSelector")).matches(namespace)
    of_object = parse(hook.get("objectSelector"))
    found = set()
    for target in targets:
        # The selector of namespaces is asked for Namespace objects, too; other kinds of the whole cluster always pass.
        seen = in_namespace or not (target.namespaced or target.plural == "namespaces")
        if seen and of_object.matches(dict(target.labels)) and any(_rules(hook, target)):
            found.add(target.plural)
    return sorted(found)


def _rules(hook: Mapping[str, Any], target: Target) -> Iterator[bool]:
    for rule in hook.get("rules") or []:
        groups, kinds = rule.get("apiGroups") or [], rule.get("resources") or []
        operations = set(rule.get("operations") or [])
        scope = rule.get("scope") or "*"
        yield (
            bool({target.group, "*"} & set(groups))
            and bool({target.plural, "*", "*/*"} & set(kinds))
            and bool({"CREATE", "UPDATE", "*"} & operations)
            and scope in ("*", "Namespaced" if target.namespaced else "Cluster")
        )


def _managers(world: World) -> List[Finding]:
    """Two cert-managers give the same certificates in turns."""
    homes = sorted(
        f"{d['metadata']['namespace']}/{d['metadata']['name']}"
        for d in world.deployments
        if any(_CERT_MANAGER.search(str(c.get("image", ""))) for c in d["spec"]["template"]["spec"]["containers"])
        and (d.get("spec") or {}).get("replicas", 1)
    )
    if len(homes) < 2:
        return []
    detail = f"{len(homes)} cert-managers run ({', '.join(homes)}) and write each other's certificates anew"
    remedy = "Keep one. This stack needs none."
    return [Finding("cert-manager-twice", WARNING, detail, "cert-manager", remedy=remedy)]
