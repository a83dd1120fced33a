# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader

from ansible_collections.gpufleet.nvidia.plugins.action.mig_partition import ActionModule
from ansible_collections.gpufleet.nvidia.plugins.plugin_utils._files import BadFile, read_documents, read_policy


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
        ("a: " + "x" * (2 * 1024 * 1024), "larger than 1 MiB"),
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


# --- hostile files: data, never code, in bounded time and memory ----------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{{ lookup('ansible.builtin.pipe', 'touch /tmp/never') }}",
        "{% for x in range(10**9) %}x{% endfor %}",
        "${HOME} $(touch never) `touch never`",
        "snowman \u2603, right-to-left \u202e, zero width \u200b, beyond the plane \U0001f600",
        "' OR 1=1 -- \"; DROP",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_hostile_texts_are_passed_on_as_they_stand(tmp_path, text):
    quoted = json.dumps({"driver": {"env": [{"name": "A", "value": text}]}}, ensure_ascii=False)
    assert read_policy(_file(tmp_path, quoted))["driver"]["env"][0]["value"] == text


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f"])
def test_control_characters_are_refused(tmp_path, character):
    with pytest.raises(BadFile, match="not valid YAML: unacceptable character"):
        read_policy(_file(tmp_path, f"a: 'x{character}y'\n"))


def _refused_soon(path, said):
    began = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(BadFile) as caught:
            read_policy(path)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert peak < 100 * 1024 * 1024
    assert time.monotonic() - began < 20  # a second on an idle machine


def test_merge_keys_that_stand_for_billions_of_values_are_refused_before_they_are_merged(tmp_path):
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    _refused_soon(_file(tmp_path, "\n".join(lines)), "aliases expand to more than")


def test_a_bomb_in_the_text_of_an_extra_object_is_refused(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    text = json.dumps({"extraObjects": ["\n".join(lines)]})
    _refused_soon(_file(tmp_path, text), "extraObjects[0]: its YAML aliases expand to more than")


@pytest.mark.parametrize("number", ["9" * 100_000, ":".join(["1"] * 100_000), "0x" + "f" * 100_000])
def test_numbers_that_take_hours_to_compute_are_refused(tmp_path, number):
    _refused_soon(_file(tmp_path, f"a:\n  b: {number}\n"), "a number of")


def test_a_file_as_deep_as_no_values_are_is_refused(tmp_path):
    _refused_soon(_file(tmp_path, "- " * 50_000 + "x"), "not valid YAML")


def test_two_documents_in_the_text_of_an_extra_object_are_refused(tmp_path):
    text = json.dumps({"extraObjects": ["kind: A\n---\nkind: B\n"]})
    with pytest.raises(BadFile, match=r"extraObjects\[0\]: holds 2 documents"):
        read_policy(_file(tmp_path, text))


@pytest.mark.rows("MC-01")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: v1\nversion: v1\n", "line 2: the key version is there twice, first in line 1"),
        ("a:\n  mine:\n    - devices: all\n      x: {1g: 1,\n      1g: 2}\n", "line 5: the key 1g is there twice"),
        ('{"a": {"mine": [{"x": {\n"1g": 1, "2g": 1,\n"1g": 2}}]}}', "line 3: the key 1g is there twice"),
        ("0x10: a\n16: b\n", "line 2: the key 16 is there twice"),
        ("a: &x {b: 1}\nc: &y {d: 1}\ne:\n  <<: *x\n  <<: *y\n", "line 5: the key << is there twice"),
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4: the key b is there twice"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_line_where_that_is_asked_for(tmp_path, text, said):
    path = _file(tmp_path, text)
    with pytest.raises(BadFile) as caught:
        read_documents(path, unique=True)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert read_documents(path)


def test_keys_that_only_look_alike_are_no_duplicates(tmp_path):
    text = "a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n'1': a\n1: b\nd: [*x, *x]\n"
    (read,) = read_documents(_file(tmp_path, text), unique=True)
    assert (read["c"], read["1"], read[1]) == ({"b": 2}, "a", "b")


def test_a_key_that_none_can_be_is_refused(tmp_path):
    with pytest.raises(BadFile, match="not valid YAML"):
        read_documents(_file(tmp_path, "!!seq a: 1\n"), unique=True)


@pytest.mark.rows("MC-01")
def test_mig_partition_reads_its_files_so(tmp_path):
    action = ActionModule.__new__(ActionModule)
    action._loader = DataLoader()
    text = "version: v1\nmig-configs:\n  mine:\n    - devices: all\n      mig-enabled: true\n      mig-devices:\n"
    good = _file(tmp_path, f"{text}        1g.5gb: 2\n")
    assert action._mapping("config_file", good)["mig-configs"]["mine"][0]["mig-devices"] == {"1g.5gb": 2}
    bad = _file(tmp_path, f"{text}        1g.5gb: 2\n        1g.5gb: 3\n")
    with pytest.raises(AnsibleActionFail, match=r"hooks_file: .*line 8: the key 1g.5gb .*line 7. Nothing has been"):
        action._mapping("hooks_file", bad)
