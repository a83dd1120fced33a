# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node Feature Discovery: what the worker finds, how rules are judged, and which labels the master gives a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from .node import Node

Object = dict[str, Any]
NS = "feature.node.kubernetes.io"
NODE_LABEL = "nfd.node.kubernetes.io/node-name"
OWNED = "nfd.node.kubernetes.io/feature-labels"
PCI_CLASSES = ("03", "0b40", "12")  # defaults of the worker; the operator's chart gives its own
PCI_FIELDS = ("class", "vendor")

# The order in which PCI attributes appear in a label's name.
_FIELD_ORDER = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")


def pci_devices(node: Node) -> list[dict[str, str]]:
    """What /sys/bus/pci/devices shows of a server of this kind."""
    found = [
        {"class": "0200", "vendor": "8086", "device": "1563"},
        {"class": "0300", "vendor": "1a03", "device": "2000"},
    ]
    found += [
        {"class": g.product.pci_class, "vendor": "10de", "device": f"{g.product.device_id:04x}"} for g in node.gpus
    ]
    if node.spec.nvswitch:
        found += [{"class": "0680", "vendor": "10de", "device": "22a3"}] * 4
    if node.spec.mellanox:
        found += [{"class": "0207", "vendor": "15b3", "device": "1021"}] * 2
    return found


def features(
    node: Node, sys: bool, os_release: str | None, features_d: Mapping[str, str]
) -> tuple[Object, dict[str, str]]:
    """Raw features and the labels of the ``local`` source. ``sys``: the host's /sys is mounted."""
    kernel = node.spec.kernel
    numbers = re.findall(r"\d+", kernel)[:3]
    attributes: Object = {
        "kernel.version": {"full": kernel, "major": numbers[0], "minor": numbers[1], "revision": numbers[2]},
        "cpu.model": {"vendor_id": node.spec.cpu_vendor, "family": "6", "id": "143", "hypervisor": "none"},
        "cpu.topology": {"hardware_multithreading": "true", "socket_count": "2"},
    }
    flags: Object = {
        "cpu.cpuid": {flag: {} for flag in ("ADX", "AESNI", "AMXBF16", "AVX", "AVX2", "AVX512F", "FMA3")},
        "kernel.loadedmodule": {module: {} for module in sorted(node.modules)},
    }
    if os_release is not None:
        values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
        version = values.get("VERSION_ID", "").strip('"')
        attributes["system.osrelease"] = {
            "ID": values.get("ID", "").strip('"'), "VERSION_ID": version,
            "VERSION_ID.major": version.split(".")[0], "VERSION_ID.minor": ".".join(version.split(".")[1:2]),
        }  # fmt: skip
    instances: Object = {"pci.device": [{"attributes": d} for d in pci_devices(node)]} if sys else {}
    if sys:
        attributes["memory.numa"] = {"is_numa": "true", "node_count": "2"}
    local: dict[str, str] = {}
    for text in features_d.values():
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if line.strip() and not line.startswith("#"):
                local[key.strip()] = value.strip() if equals else "true"
    wrapped: Object = {
        "flags": {name: {"elements": elements} for name, elements in flags.items()},
        "attributes": {name: {"elements": elements} for name, elements in attributes.items()},
        "instances": {name: {"elements": elements} for name, elements in instances.items()},
    }
    return wrapped, local


def labels(found: Object, local: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    """Labels that the worker makes of its features, with its configuration's PCI settings."""
    out: dict[str, str] = {}
    attributes = {name: f["elements"] for name, f in found["attributes"].items()}
    for key in ("full", "major", "minor", "revision"):
        out[f"{NS}/kernel-version.{key}"] = attributes["kernel.version"][key]
    for key in ("vendor_id", "family", "id"):
        out[f"{NS}/cpu-model.{key}"] = attributes["cpu.model"][key]
    out[f"{NS}/cpu-hardware_multithreading"] = attributes["cpu.topology"]["hardware_multithreading"]
    for flag in found["flags"]["cpu.cpuid"]["elements"]:
        out[f"{NS}/cpu-cpuid.{flag}"] = "true"
    for key, value in attributes.get("system.osrelease", {}).items():
        if value:
            out[f"{NS}/system-os_release.{key}"] = value
    if "memory.numa" in attributes:
        out[f"{NS}/memory-numa"] = "true"
    pci = ((config.get("sources") or {}).get("pci")) or {}
    classes = tuple(str(c).lower() for c in pci.get("deviceClassWhitelist") or PCI_CLASSES)
    fields = tuple(f for f in _FIELD_ORDER if f in (pci.get("deviceLabelFields") or PCI_FIELDS)) or PCI_FIELDS
    for element in found["instances"].get("pci.device", {}).get("elements", []):
        device = element["attributes"]
        if device["class"].startswith(classes):
            name = "_".join(device.get(field, "") for field in fields)
            out[f"{NS}/pci-{name}.present"] = "true"
    for key, value in local.items():
        out[key if "/" in key else f"{NS}/{key}"] = value
    return out


# -- the master


def _match(op: str, value: list[str], there: bool, found: str) -> bool:
    if op == "Exists":
        return there
    if op == "DoesNotExist":
        return not there
    if not there:
        return False
    number = int(found) if re.fullmatch(r"-?\d+", found) else None
    checks = {
        "In": lambda: found in value, "NotIn": lambda: found not in value,
        "InRegexp": lambda: any(re.search(v, found) for v in value),
        "Gt": lambda: number is not None and number > int(value[0]),
        "Lt": lambda: number is not None and number < int(value[0]),
        "Ge": lambda: number is not None and number >= int(value[0]),
        "Le": lambda: number is not None and number <= int(value[0]),
        "GeLe": lambda: number is not None and int(value[0]) <= number <= int(value[1]),
        "GtLt": lambda: number is not None and int(value[0]) < number < int(value[1]),
        "IsTrue": lambda: found == "true", "IsFalse": lambda: found == "false",
    }  # fmt: skip
    return checks[op]() if op in checks else False


def _matches(term: Object, found: Object) -> bool:
    name = term["feature"]
    expressions = term.get("matchExpressions") or {}
    by_name = term.get("matchName")

    def all_of(elements: Mapping[str, Any]) -> bool:
        if by_name and not any(
            _match(by_name["op"], [str(v) for v in by_name.get("value") or []], True, key) for key in elements
        ):
            return False
        return all(
            _match(
                e["op"],
                [str(v) for v in e.get("value") or []],
                key in elements,
                str(elements[key]) if isinstance(elements.get(key), str) else "",
            )
            for key, e in expressions.items()
        )

    if name in found.get("flags", {}):
        return all_of(found["flags"][name].get("elements") or {})
    if name in found.get("attributes", {}):
        return all_of(found["attributes"][name].get("elements") or {})
    if name in found.get("instances", {}):
        return any(all_of(i["attributes"]) for i in found["instances"][name].get("elements") or [])
    return all(e["op"] == "DoesNotExist" for e in expressions.values())


def rule_labels(rules: Iterable[Object], found: Object) -> dict[str, str]:
    out: dict[str, str] = {}
    for rule_object in rules:
        for rule in (rule_object.get("spec") or {}).get("rules") or []:
            terms = rule.get("matchFeatures") or []
            any_of = rule.get("matchAny") or []
            if all(_matches(t, found) for t in terms) and (
                not any_of or any(all(_matches(t, found) for t in a["matchFeatures"]) for a in any_of)
            ):
                out.update(
                    {
                        key if "/" in key else f"{NS}/{key}": str(value)
                        for key, value in (rule.get("labels") or {}).items()
                    }
                )
    return out


def allowed(key: str, config: Mapping[str, Any]) -> bool:
    """Whether the master gives a label of this namespace: extraLabelNs wins over denyLabelNs and over kubernetes.io."""
    space = key.split("/")[0]
    if space == NS or space.endswith("." + NS) or space in ("profile.node.kubernetes.io",):
        return True
    if space in (config.get("extraLabelNs") or []):
        return True
    for denied in config.get("denyLabelNs") or []:
        if denied == "*" or space == denied or (denied.startswith("*.") and space.endswith(denied[1:])):
            return False
    return not (space == "kubernetes.io" or space.endswith(".kubernetes.io"))


def merged(objects: Iterable[Object], node: str) -> tuple[Object, dict[str, str]]:
    """Features and labels of all NodeFeature objects of a node; the worker's own object (of the node's name)
    comes first."""
    found: Object = {"flags": {}, "attributes": {}, "instances": {}}
    out: dict[str, str] = {}
    for item in sorted(objects, key=lambda o: (o["metadata"]["name"] != node, o["metadata"]["name"])):
        spec = item.get("spec") or {}
        for kind in found:
            for name, feature in ((spec.get("features") or {}).get(kind) or {}).items():
                found[kind][name] = feature
        out.update({key: str(value) for key, value in (spec.get("labels") or {}).items()})
    return found, out


def change(current: Mapping[str, str], owned: str, wanted: Mapping[str, str]) -> Object | None:
    """The merge patch that gives a node its labels and takes away those that the master gave before; None when
    nothing differs."""
    names = sorted(key.removeprefix(f"{NS}/") for key in wanted)
    before = {name if "/" in name else f"{NS}/{name}" for name in owned.split(",") if name}
    labels_patch: dict[str, str | None] = {key: value for key, value in wanted.items() if current.get(key) != value}
    labels_patch |= {key: None for key in before - set(wanted) if key in current}
    note = ",".join(names)
    if not labels_patch and note == owned:
        return None
    return {"metadata": {"labels": labels_patch, "annotations": {OWNED: note}}}
