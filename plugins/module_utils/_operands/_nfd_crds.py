# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three CustomResourceDefinitions of Node Feature Discovery 0.19, without the texts of their schemas.

A feature rule and a feature group match nodes in the same way, so the schema of a match is written once.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ._types import Object

GROUP = "nfd.k8s-sigs.io"
NAMES = (f"nodefeatures.{GROUP}", f"nodefeaturerules.{GROUP}", f"nodefeaturegroups.{GROUP}")

_OPERATORS = (
    "DoesNotExist",
    "Exists",
    "Ge",
    "GeLe",
    "Gt",
    "GtLt",
    "In",
    "InRegexp",
    "IsFalse",
    "IsTrue",
    "Le",
    "Lt",
    "NotIn",
)


def _string() -> Object:
    return {"type": "string"}


def _object(properties: Object, *required: str) -> Object:
    schema: Object = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def _map(values: Object) -> Object:
    return {"type": "object", "additionalProperties": values}


def _list(items: Object) -> Object:
    return {"type": "array", "items": items}


def _expression() -> Object:
    operator = {"type": "string", "enum": list(_OPERATORS)}
    return _object({"op": operator, "type": _string(), "value": _list(_string())}, "op")


def _match_features() -> Object:
    term = {"feature": _string(), "matchExpressions": _map(_expression()), "matchName": _expression()}
    return _list(_object(term, "feature"))


def _rule(**more: Object) -> Object:
    """A rule that matches features; ``more`` is what it gives to the nodes that match."""
    properties = {
        "name": _string(),
        "vars": _map(_string()),
        "varsTemplate": _string(),
        "matchFeatures": _match_features(),
        "matchAny": _list(_object({"matchFeatures": _match_features()}, "matchFeatures")),
    }
    return _list(_object({**properties, **more}, "name"))


def _feature_spec() -> Object:
    instance = _object({"attributes": _map(_string())}, "attributes")
    features = {
        "attributes": _map(_object({"elements": _map(_string())}, "elements")),
        "flags": _map(_object({"elements": _map({"type": "object"})}, "elements")),
        "instances": _map(_object({"elements": _list(instance)}, "elements")),
    }
    return _object({"features": _object(features), "labels": _map(_string())})


def _rule_spec() -> Object:
    taint = {
        "effect": _string(),
        "key": _string(),
        "timeAdded": {"type": "string", "format": "date-time"},
        "value": _string(),
    }
    rules = _rule(
        annotations=_map(_string()),
        extendedResources=_map(_string()),
        labels=_map(_string()),
        labelsTemplate=_string(),
        taints=_list(_object(taint, "effect", "key")),
    )
    return _object({"rules": rules}, "rules")


def _group_status() -> Object:
    nodes = _list(_object({"name": _string()}, "name"))
    nodes["x-kubernetes-list-map-keys"] = ["name"]
    nodes["x-kubernetes-list-type"] = "map"
    return _object({"nodes": nodes})


def _crd(kind: str, scope: str, properties: Object, short_names: List[str]) -> Object:
    names: Dict[str, Any] = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": f"{kind.lower()}s",
        "singular": kind.lower(),
    }
    if short_names:
        names["shortNames"] = short_names
    head = {"apiVersion": _string(), "kind": _string(), "metadata": {"type": "object"}}
    version: Object = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object({**head, **properties}, "spec")},
    }
    if "status" in properties:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.lower()}s.{GROUP}",
            "annotations": {"controller-gen.kubebuilder.io/version": "v0.16.3"},
            "labels": {"app.kubernetes.io/managed-by": "gpufleet"},
        },
        "spec": {"group": GROUP, "names": names, "scope": scope, "versions": [version]},
    }


def crds() -> List[Object]:
    """The CRDs as fresh objects, in the order of ``NAMES``."""
    groups = {"spec": _object({"featureGroupRules": _rule()}, "featureGroupRules"), "status": _group_status()}
    return [
        _crd("NodeFeature", "Namespaced", {"spec": _feature_spec()}, []),
        _crd("NodeFeatureRule", "Cluster", {"spec": _rule_spec()}, ["nfr"]),
        _crd("NodeFeatureGroup", "Namespaced", groups, ["nfg"]),
    ]
