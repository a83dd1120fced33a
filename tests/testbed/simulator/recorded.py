# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes objects again from the recorded, flattened ones of a real GPU Operator (tests/fixtures/operator).

They prove that the simulator is honest without our code: what NVIDIA's operator makes comes up, and nothing less does.
Shell text and file contents were not recorded; those that do the work are filled in here.

    python -m ansible_collections.gpufleet.nvidia.tests.testbed.simulator.recorded default | kubectl apply -f -
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from .pod import Object

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "operator"
NAMESPACE = "gpu-operator"

# Maps whose keys may hold dots: what follows is one key.
_MAPS = ("labels", "annotations", "matchLabels", "nodeSelector", "data", "limits", "requests")
_WAIT_TOOLKIT = (
    "until [ -f /run/nvidia/validations/toolkit-ready ]; do echo waiting for the container toolkit; sleep 5; done"
)
_SCRIPTS = {
    "toolkit-validation": _WAIT_TOOLKIT,
    "nvidia-operator-validator": "echo all validations are successful; while true; do sleep 86400; done",
    "nvidia-driver-ctr": "rm -f /run/nvidia/validations/.driver-ctr-ready "
    "/run/nvidia/validations/.driver-daemons-status",
}
_FILES = {
    "nvidia-container-toolkit-entrypoint/entrypoint.sh": """#!/bin/sh
until [ -f /run/nvidia/validations/driver-ready ]; do
  echo "waiting for the driver"
  sleep 5
done
set -o allexport
. /run/nvidia/validations/driver-ready
sleep 5
exec nvidia-toolkit
""",
    "nvidia-device-plugin-entrypoint/entrypoint.sh": """#!/bin/sh
until [ -f /run/nvidia/validations/driver-ready ]; do
  echo "waiting for the driver"
  sleep 5
done
set -o allexport
. /run/nvidia/validations/driver-ready
exec nvidia-device-plugin
""",
    "nvidia-mig-manager-entrypoint/entrypoint.sh": """#!/bin/sh
until [ -f /run/nvidia/validations/driver-ready ]; do
  echo "waiting for the driver"
  sleep 5
done
set -o allexport
. /run/nvidia/validations/driver-ready
WITH_SHUTDOWN_HOST_GPU_CLIENTS=$IS_HOST_DRIVER
exec nvidia-mig-manager
""",
    "nvidia-driver-startup-probe/startup-probe.sh": """#!/bin/sh
[ -f /sys/module/nvidia/refcnt ] || exit 1
nvidia-smi || exit 1
mv -f /run/nvidia/validations/.driver-ctr-ready.new /run/nvidia/validations/.driver-ctr-ready
""",
    "default-gpu-clients/clients.yaml": "version: v1\nsystemd-services: [nvsm.service, nvidia-dcgm.service, "
    "dcgm.service, dcgm-exporter.service]\n",
    "default-mig-parted-config/config.yaml": """version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-enabled: [{devices: all, mig-enabled: true, mig-devices: {}}]
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
""",
    "gpu-operator-node-feature-discovery-master-conf/nfd-master.conf": "extraLabelNs: [nvidia.com]\n",
    "gpu-operator-node-feature-discovery-worker-conf/nfd-worker.conf": """sources:
  pci:
    deviceClassWhitelist: ["02", "0200", "0207", "0300", "0302"]
    deviceLabelFields: [vendor]
""",
}


def _path(text: str) -> list[str]:
    """Parts of a flattened path. ``[x]`` is an item of a list, ``[]=x`` a plain value in one."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        if text[position] == ".":
            position += 1
        if text.startswith("[]=", position):
            parts.append(text[position:])
            break
        if text[position] == "[":
            end = text.index("]", position)
            parts.append(text[position : end + 1])
            position = end + 1
            continue
        if parts and parts[-1] in _MAPS and parts[-2:-1] != ["properties"]:
            parts.append(text[position:])
            break
        found = re.match(r"[^.\[]+", text[position:])
        assert found is not None, text
        parts.append(found.group(0))
        position += found.end()
    return parts


def unflatten(flat: dict[str, Any]) -> Object:
    """An object from its flattened paths (the form of tools/compare_objects.py)."""
    root: Object = {}
    orders: list[tuple[list[str], list[str]]] = []
    for text, value in flat.items():
        parts = _path(text)
        if parts[-1] == "order" and parts[-2:-1] == ["initContainers"]:
            orders.append((parts[:-1], str(value).split()))
            continue
        here: Any = root
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            if part.startswith("[]="):
                here.append(_typed(part[3:]))
                break
            made: Any = value if not following else ([] if following.startswith("[") else {})
            if part.startswith("["):
                key = part[1:-1]
                item = next((i for k, i in here if k == key), None)
                if item is None:
                    item = made
                    here.append((key, item))
                here = item
            else:
                if part not in here:
                    here[part] = made
                here = here[part]
    plain = _plain(root)
    for parts, order in orders:
        here = plain
        for part in parts:
            here = here[part]
        here.sort(key=lambda c: order.index(c["name"]))
    return plain  # type: ignore[no-any-return]


def _typed(text: str) -> Any:
    return {"True": True, "False": False}.get(text, int(text) if re.fullmatch(r"\d+", text) else text)


def _plain(value: Any) -> Any:
    """Lists of (key, item) become lists: by number where the keys are numbers."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(i, tuple) for i in value):
            if all(key.isdigit() for key, _unused in value):
                value = sorted(value, key=lambda pair: int(pair[0]))
            return [_plain(item) for _unused, item in value]
        return [_plain(item) for item in value]
    return value


def objects(name: str = "default", nfd: bool = True, nodes: bool = False) -> dict[str, Object]:
    """Kind/name -> object, of a values file's recording and of NFD's."""
    flat = json.loads((FIXTURES / f"{name}.json").read_text())
    if nfd:
        flat = {**json.loads((FIXTURES / "nfd-objects.json").read_text()), **flat}
    values = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text()) or {}
    plugin_data = ((values.get("devicePlugin") or {}).get("config") or {}).get("data") or {}
    out: dict[str, Object] = {}
    for key, paths in flat.items():
        if key.startswith("Node/") and not nodes:
            continue
        made = unflatten(paths)
        if made.get("kind") == "ConfigMap":
            for file in made.get("data") or {}:
                known = _FILES.get(f"{made['metadata']['name']}/{file}")
                made["data"][file] = known if known is not None else plugin_data.get(file, "")
        template = made.get("spec", {}).get("template", {}).get("spec") if isinstance(made.get("spec"), dict) else None
        for container in [*(template or {}).get("initContainers", []), *(template or {}).get("containers", [])]:
            _fill(container)
        out[key] = made
    return out


def _fill(container: Object) -> None:
    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {})
    for holder, key in ((container, "args"), (container, "command"), (hook, "command")):
        if "<script>" in holder.get(key, []):
            holder[key] = [_SCRIPTS[container["name"]] if word == "<script>" else word for word in holder[key]]
    for item in container.get("env", []):
        if item.get("value") == "<digest>":
            item["value"] = "3735928559"


def pod_of(workload: Object, node: str, name: str = "") -> Object:
    """The pod that a DaemonSet's or Deployment's controller would make on a node."""
    meta = workload["metadata"]
    template = json.loads(json.dumps(workload["spec"]["template"]))
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            **template.get("metadata", {}), "name": name or f"{meta['name']}-x",
            "namespace": meta.get("namespace", NAMESPACE), "uid": f"uid-{meta['name']}-{node}",
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": workload["kind"], "name": meta["name"], "uid": f"uid-{meta['name']}"}
            ],
        },
        "spec": {**template["spec"], "nodeName": node},
    }  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="recorded", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="a recording in tests/fixtures/operator: default, open-rdma-mixed, ..")
    parser.add_argument("--no-nfd", action="store_true")
    options = parser.parse_args(argv)
    first: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    found = objects(options.name, nfd=not options.no_nfd)
    order = ("CustomResourceDefinition", "ServiceAccount", "RuntimeClass", "ConfigMap")
    items = sorted(found.values(), key=lambda o: order.index(o["kind"]) if o["kind"] in order else len(order))
    json.dump({"apiVersion": "v1", "kind": "List", "items": [first, *items]}, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
