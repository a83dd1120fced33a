# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.plugin_utils._files import BadFile, read_policy


def _file(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "values.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.rows("INS-01")
def test_values_are_read_as_they_stand(tmp_path):
    assert read_policy(_file(tmp_path, "driver: {enabled: false}\n")) == {"driver": {"enabled": False}}


def test_an_empty_file_means_the_defaults(tmp_path):
    assert read_policy(_file(tmp_path, "# nothing yet\n---\n")) == {}


@pytest.mark.rows("INS-08")
def test_extra_objects_as_text_become_mappings(tmp_path):
    read = read_policy(_file(tmp_path, "extraObjects:\n  - |\n    kind: ConfigMap\n  - {kind: Secret}\n"))
    assert read["extraObjects"] == [{"kind": "ConfigMap"}, {"kind": "Secret"}]


@pytest.mark.rows("INS-08")
def test_templates_in_extra_objects_survive_without_quotes(tmp_path):
    text = "extraObjects:\n  - |\n    metadata:\n      namespace: {{ .Release.Namespace }}\n"
    read = read_policy(_file(tmp_path, text))
    assert read["extraObjects"] == [{"metadata": {"namespace": "{{ .Release.Namespace }}"}}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "not valid YAML"),
        ("- a\n- b\n", "holds a list"),
        ("just words\n", "holds a str"),
        ("kind: A\n---\nkind: B\n", "2 documents (A, B)"),
        (b"a: \x80\x81", "not valid YAML"),
        ("extraObjects: ['a: [']\n", "extraObjects[0]"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: " + "x" * (5 * 1024 * 1024), "larger than 4 MiB"),
        ("a: " + "[" * 5000 + "]" * 5000, "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path, text, said):
    path = _file(tmp_path, text)
    with pytest.raises(BadFile) as caught:
        read_policy(path)
    assert path in str(caught.value)
    assert said in str(caught.value)


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(BadFile, match="aliases expand"):
        read_policy(_file(tmp_path, "\n".join(lines)))


def test_a_mapping_that_contains_itself_is_refused(tmp_path):
    with pytest.raises(BadFile, match="aliases expand"):
        read_policy(_file(tmp_path, "a: &a {b: *a}\n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadFile, match="No such file"):
        read_policy(str(tmp_path / "none.yaml"))
