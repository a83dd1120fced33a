# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile values in a policy are data, never code: they arrive in the objects as they were, or are refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands import build
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._types import ClusterFacts, NodeFacts
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import ERROR
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._cuda import cuda_of, tag_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load, merge
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._tree import put
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._facts import with_nodes

GPU_NODE = NodeFacts(
    "gpu-1",
    labels={
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    },
    kernel="6.8.0-60-generic",
)
HOSTILE = [
    "{{ lookup('ansible.builtin.pipe', 'touch never') }}",
    "{% raw %}{{ x }}{% endraw %}",
    "$(touch never) `touch never` ${IFS}",
    "\u202eright to left\u202c \u2603 \U0001f600 \ud800".encode("utf-8", "ignore").decode(),
    "tab\tnewline\nbell\x07null\x00escape\x1b[31m",
    "a" * 100_000,
]


def deep(levels: int) -> Any:
    value: Any = "x"
    for _unused in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_arrives_as_it_was(text: str) -> None:
    values = {
        "driver": {"env": [{"name": "HOSTILE", "value": text}]},
        "devicePlugin": {"config": {"create": True, "name": "plugin", "default": "any", "data": {"any": text}}},
    }
    policy, findings = load(merge([values])[0])
    assert policy is not None, findings
    objects = build(policy, with_nodes(ClusterFacts(), [GPU_NODE]))
    config = next(o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "plugin")
    assert config["data"] == {"any": text}
    driver = next(o for o in objects if o["kind"] == "DaemonSet" and "driver" in o["metadata"]["name"])
    found = [
        entry["value"]
        for container in driver["spec"]["template"]["spec"]["containers"]
        for entry in container.get("env", [])
        if entry["name"] == "HOSTILE"
    ]
    assert found == [text]


@pytest.mark.parametrize("levels", [1_000, 100_000])
@pytest.mark.parametrize(
    "place", [lambda v: {"a": v}, lambda v: {"daemonsets": {"labels": v}}, lambda v: {"extraObjects": [v]}]
)
def test_a_policy_as_deep_as_none_is_is_refused_with_its_path(levels: int, place: Any) -> None:
    began = time.monotonic()
    _merged, findings = merge([place(deep(levels))])
    assert [finding.severity for finding in findings] == [ERROR]
    assert len(findings[0].sentence()) < 1_000
    assert time.monotonic() - began < 10


def test_more_values_than_any_policy_has_are_refused_at_once() -> None:
    began = time.monotonic()
    _merged, findings = merge([{"driver": {f"key{n}": n for n in range(1_000_000)}}])
    assert [finding.severity for finding in findings] == [ERROR]
    assert time.monotonic() - began < 10


def test_a_text_larger_than_any_policy_is_refused() -> None:
    _merged, findings = merge([{"driver": {"version": "a" * 10_000_000}}])
    assert [finding.severity for finding in findings] == [ERROR]
    assert len(findings[0].sentence()) < 1_000


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cudaToolkit.version", "13.0"),
        ("driver.version", "580.159.04"),
        ("operator.runtimeClass", "nvidia"),
        ("daemonsets.rollingUpdate.maxUnavailable", "10%"),
        ("dcgmExporter.serviceMonitor.interval", "15s"),
    ],
)
def test_a_line_end_behind_a_value_is_no_part_of_it(path: str, value: str) -> None:
    def read(text: str) -> list[str]:
        values: dict[str, Any] = {"cudaToolkit": {"enabled": True}}
        put(values, path, text)
        return [finding.path for finding in load(values)[1] if finding.severity == ERROR]

    assert read(value) == []
    assert read(value + "\n") == [path]


@pytest.mark.parametrize("version", ["13.0\n", "13.0.1\n"])
def test_no_tag_is_made_of_a_version_with_a_line_end(version: str) -> None:
    assert tag_of(version) == version
    assert cuda_of(version) == ""
