# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An NFD that runs already: is there one that is not ours, and do its labels tell which nodes have a GPU."""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Mapping, Optional

from .._plan import ERROR, INFO, WARNING, Finding
from ._nfd_crds import NAMES
from ._types import Object

try:
    import yaml

    HAS_YAML = True
except ImportError:  # only needed to read the configuration of a foreign worker
    HAS_YAML = False


def detect(deployments: Iterable[Object], daemonsets: Iterable[Object], crds: Iterable[str] = ()) -> Optional[str]:
    """Names the master of an NFD that runs and that we did not make; None when there is none.

    A workload is NFD's when its container runs ``nfd-master``, or its image or name label is node-feature-discovery.
    ``crds`` are the names of the cluster's CRDs: an NFD without ``nodefeatures`` is too old for GFD's labels, and the
    answer says so.
    """
    known = set(crds)
    note = (
        f" (without the CRD {NAMES[0]}, which GPU feature discovery needs)" if known and NAMES[0] not in known else ""
    )
    for kind, items in (("Deployment", deployments), ("DaemonSet", daemonsets)):
        for item in items:
            meta = item.get("metadata", {})
            labels = meta.get("labels") or {}
            if labels.get("app.kubernetes.io/managed-by") == "gpufleet" or not _is_master(item, labels):
                continue
            return f"{kind} {meta.get('namespace', '')}/{meta.get('name', '')}{note}"
    return None


def masters(workloads: Iterable[Object]) -> List[str]:
    """Masters of all NFDs, ours too, as "Deployment namespace/name"."""
    found = [w for w in workloads if _is_master(w, (w.get("metadata") or {}).get("labels") or {})]
    return sorted(f"{w['kind']} {w['metadata'].get('namespace', '')}/{w['metadata']['name']}" for w in found)


_OTHER_PROGRAMS = {"nfd-worker", "nfd-gc", "nfd-topology-updater"}
_OTHER_ROLES = _OTHER_PROGRAMS | {"worker", "gc", "topology-updater"}


def _is_master(item: Object, labels: Mapping[str, str]) -> bool:
    containers = item.get("spec", {}).get("template", {}).get("spec", {}).get("containers") or []
    started = {
        str(word).rsplit("/", 1)[-1]
        for container in containers
        for word in [*(container.get("command") or []), *(container.get("args") or [])]
    }
    if "nfd-master" in started:
        return True
    if started & _OTHER_PROGRAMS:
        return False
    names = {labels.get("app.kubernetes.io/name", "")} | {_image_name(str(c.get("image", ""))) for c in containers}
    roles = {labels.get(key, "") for key in ("role", "app.kubernetes.io/component", "app")}
    return "node-feature-discovery" in names and not roles & _OTHER_ROLES


def _image_name(image: str) -> str:
    return image.split("@")[0].rsplit("/", 1)[-1].split(":")[0]


def judge_settings(config: Mapping[str, Any], path: str = "", target: str = "") -> List[Finding]:
    """Whether a worker's configuration makes labels of GPU nodes that we, and the GPU Operator, know."""
    pci = (config.get("sources") or {}).get("pci") or {}
    fields = pci.get("deviceLabelFields")
    classes = [str(c) for c in pci.get("deviceClassWhitelist") or ("03", "0b40", "12")]
    found = []
    # The worker's own default is [class, vendor], which makes pci-0302_10de.present.
    if fields is not None and list(fields) not in (["vendor"], ["class", "vendor"]):
        text = f"deviceLabelFields is {json.dumps(list(fields))}: the labels that it makes do not count as a GPU's."
        remedy = 'Set deviceLabelFields to ["vendor"].'
        found.append(Finding("nfd.label-fields", ERROR, text, target, path, remedy))
    if not any(wanted.startswith(c) for c in classes for wanted in ("0302", "0300")):
        text = f"deviceClassWhitelist ({', '.join(classes)}) has neither of a GPU's PCI classes, 0300 and 0302."
        remedy = 'Add "0300" and "0302".'
        found.append(Finding("nfd.class-whitelist", ERROR, text, target, path, remedy))
    if not found and list(fields or ()) != ["vendor"]:
        text = "GPU nodes get the label pci-0302_10de.present or pci-0300_10de.present, which count as well."
        found.append(Finding("nfd.class-labels", INFO, text, target, path))
    return found


def judge_config(data: Mapping[str, str], target: str = "") -> List[Finding]:
    """The same for the ConfigMap (its ``data``) of a worker that is not ours. ``target`` names the ConfigMap."""
    text = data.get("nfd-worker.conf", "")
    if not HAS_YAML:
        return [Finding("nfd.unread", WARNING, "was not read: the Python package PyYAML is not there.", target)]
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [Finding("nfd.unread", WARNING, f"is not YAML: {error}", target)]
    return judge_settings(config if isinstance(config, Mapping) else {}, "", target)


_COUNTED = tuple(f"feature.node.kubernetes.io/{p}.present" for p in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))


def judge_labels(node: str, labels: Mapping[str, str]) -> List[Finding]:
    """A node that shows an NVIDIA device under a label that does not count as a GPU's, with what would mend it."""
    if any(labels.get(key) == "true" for key in _COUNTED):
        return []
    other = sorted(key for key, value in labels.items() if value == "true" and _names_gpu(key))
    if not other:
        return []
    text = f"has an NVIDIA device by the label {other[0]}, which does not count as a GPU's."
    remedy = 'Set deviceLabelFields to ["vendor"] in the configuration of the NFD workers.'
    return [Finding("nfd.uncounted-label", WARNING, text, node, "", remedy)]


def _names_gpu(label: str) -> bool:
    """``pci-0302_10de_2330.present``: vendor NVIDIA, and not the class of another device such as 0680 (bridge)."""
    prefix = "feature.node.kubernetes.io/pci-"
    if not label.startswith(prefix):
        return False
    parts = label[len(prefix) :].rsplit(".", 1)[0].split("_")
    return "10de" in parts and (parts[0] == "10de" or parts[0].startswith("03"))
