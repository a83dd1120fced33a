# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema's table: each row is complete, and a value that does not fit gives one finding at its path."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import explain, load
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._schema import (
    CHART,
    DEAD,
    DEPRECATED,
    LATER,
    OLDER,
    PARTS,
    TABLE,
    USED,
    Key,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._types import WORDS

WRONG: dict[str, Any] = {
    "bool": "yes",
    "int": "x",
    "string": 7,
    "text": 7,
    "version": 595.1,
    "image": 7,
    "name": "Not a name",
    "path": "relative/path",
    "enum": "nonsense",
    "percent": "lots",
    "duration": "soon",
    "int-or-text": True,
    "map": ["x"],
    "texts": ["x"],
    "boolmap": ["x"],
    "strings": "x",
    "env": {"A": "b"},
    "tolerations": {"key": "x"},
    "resources": ["x"],
    "sizes": 3,
    "objects": {"a": "b"},
    "object": "x",
    "list": "x",
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def forms() -> list[Any]:
    rows = []
    for form in ("values", "clusterpolicy"):
        for key in TABLE:
            path = key.path_in(form)
            if path and key.type != "any":
                rows.append(pytest.param(form, path, key, id=f"{form}:{path}"))
    return rows


@pytest.mark.rows("INS-01", "INS-02")
@pytest.mark.parametrize(("form", "path", "key"), forms())
def test_a_value_of_a_wrong_type_gives_one_finding_at_its_path(form: str, path: str, key: Key) -> None:
    policy, findings = load(nested(path, WRONG[key.type]), kind=form)
    wrong = [finding for finding in findings if finding.severity == "error"]
    assert policy is None
    assert [finding.path for finding in wrong] == [path]
    assert "allowed is" in wrong[0].detail


def test_no_key_stands_twice_in_a_form() -> None:
    for form in ("values", "clusterpolicy"):
        paths = Counter(key.path_in(form) for key in TABLE if key.path_in(form))
        assert [path for path, count in paths.items() if count > 1] == []


def test_no_key_is_both_a_leaf_and_a_block() -> None:
    for form in ("values", "clusterpolicy"):
        paths = {key.path_in(form) for key in TABLE} - {""}
        assert [p for p in paths for q in paths if q.startswith(p + ".")] == []


def test_every_row_says_what_it_is_and_what_to_do() -> None:
    for key in TABLE:
        assert key.about, key
        assert key.type in WORDS, key
        assert key.status in (USED, CHART, DEAD, DEPRECATED, LATER, OLDER), key
        assert key.note or key.status == USED, key


def test_shared_keys_are_those_of_every_component() -> None:
    paths = {key.path for key in TABLE}
    for part in PARTS:
        for name in (
            "repository",
            "image",
            "version",
            "imagePullPolicy",
            "imagePullSecrets",
            "resources",
            "args",
            "env",
            "hostNetwork",
        ):
            assert f"{part.name}.{name}" in paths
        assert (f"{part.name}.enabled" in paths) == (part.name != "validator")


def test_the_schema_in_words_has_every_row() -> None:
    rows = explain()
    assert len(rows) == len(TABLE)
    found = {row.values: row for row in rows}
    assert found["driver.upgradePolicy.gpuPodDeletion.force"].cluster_policy == "driver.upgradePolicy.podDeletion.force"
    assert found["dcgm.enabled"].default == "false"
    assert found["dcgm.enabled"].nil == "true"
    assert found["mig.strategy"].type == "one of none, single, mixed"
