# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the user's own, with templates."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import expand, load


def config_map(**data: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}, "data": data}


@pytest.mark.rows("INS-08")
def test_namespace_and_values_are_filled_in() -> None:
    entry = config_map(
        a="in {{ .Release.Namespace }}", b="{{.Values.mig.strategy}}/{{ .Values.toolkit.enabled }}", c="plain"
    )
    policy, findings = load({"extraObjects": [entry], "mig": {"strategy": "mixed"}}, namespace="gpus")
    assert policy is not None
    assert findings == []
    assert policy.extra_objects[0]["data"] == {"a": "in gpus", "b": "mixed/true", "c": "plain"}


@pytest.mark.rows("INS-08")
@pytest.mark.parametrize(
    "text",
    [
        '{{ include "x" . }}',
        "{{ .Release.Name }}",
        "{{- .Release.Namespace }}",
        "{{ .Values.driver }}",
        "{{ .Values.nothing }}",
        "{{ .Values.mig.strategy | quote }}",
        "{{ if true }}a{{ end }}",
        "{{ open",
    ],
)
def test_every_other_template_is_refused_with_its_place(text: str) -> None:
    policy, findings = load({"extraObjects": [config_map(a="x"), config_map(a=text)]})
    assert policy is None
    assert {f.path for f in findings} == {"extraObjects[1].data.a"}
    assert "Write the value itself." in findings[0].remedy


@pytest.mark.rows("INS-08")
def test_an_object_needs_kind_version_and_name() -> None:
    policy, findings = load({"extraObjects": [{"apiVersion": "v1", "metadata": {}}, "apiVersion: v1"]})
    assert policy is None
    assert {f.path for f in findings} == {"extraObjects[0].kind", "extraObjects[0].metadata.name", "extraObjects[1]"}


@pytest.mark.rows("INS-08")
def test_a_text_is_expanded_before_it_is_parsed() -> None:
    assert expand("namespace: {{ .Release.Namespace }}", "gpus", {}) == ("namespace: gpus", [])
    text, wrong = expand("{{ lookup }}", "gpus", {})
    assert text == ""
    assert wrong == ["The template {{ lookup }} is not possible here."]
