# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role says of its variables is true: argument specs equal defaults, and fit the module that gets the values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT, options

TYPES = {"bool": bool, "dict": dict, "float": float, "int": int, "list": list, "path": str, "str": str}
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir() if (path / "tasks").is_dir())


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def spec_of(role: str) -> dict[str, dict[str, Any]]:
    spec: dict[str, dict[str, Any]] = load(CHECKOUT / "roles" / role / "meta/argument_specs.yml")["argument_specs"]
    assert set(spec) == {path.stem for path in (CHECKOUT / "roles" / role / "tasks").glob("*.yml")}
    return spec["main"]["options"]


def differences(spec: dict[str, dict[str, Any]], defaults: dict[str, Any]) -> list[str]:
    """Keys, values and types in which a role's argument spec and its defaults differ."""
    with_default = {name for name, words in spec.items() if "default" in words}
    found = [f"{name}: a default without an argument spec" for name in defaults.keys() - spec.keys()]
    found += [f"{name}: its spec has a default, defaults/main.yml has not" for name in with_default - defaults.keys()]
    found += [
        f"{name}: neither required nor with a default"
        for name, words in spec.items()
        if name not in with_default and not words.get("required")
    ]
    for name in spec.keys() & defaults.keys():
        words, default = spec[name], defaults[name]
        if name not in with_default:
            found.append(f"{name}: defaults/main.yml has a default, its spec has not")
        elif words["default"] != default or type(words["default"]) is not type(default):
            found.append(f"{name}: default {words['default']!r} in its spec, {default!r} in defaults/main.yml")
        elif default.__class__ is not TYPES[words["type"]]:
            found.append(f"{name}: {words['type']} in its spec, but the default is {default!r}")
        elif "choices" in words and default not in words["choices"]:
            found.append(f"{name}: the default {default!r} is not one of its choices")
    return sorted(found)


def test_there_are_roles() -> None:
    assert "cluster_policy" in ROLES


@pytest.mark.rows("S44")
@pytest.mark.parametrize("role", ROLES)
def test_the_argument_spec_equals_the_defaults(role: str) -> None:
    assert differences(spec_of(role), load(CHECKOUT / "roles" / role / "defaults/main.yml")) == []


@pytest.mark.parametrize("role", ROLES)
def test_variables_carry_the_name_of_their_role_and_say_what_they_are(role: str) -> None:
    for name, words in spec_of(role).items():
        assert name.startswith(f"{role}_")
        assert words["description"]
        assert words["type"] != "list" or words["elements"], name


@pytest.mark.parametrize("role", ROLES)
def test_a_variable_that_goes_to_a_module_has_the_type_and_choices_of_its_option(role: str) -> None:
    spec, used = spec_of(role), set()
    for file in sorted((CHECKOUT / "roles" / role / "tasks").glob("*.yml")):
        text = file.read_text(encoding="utf-8")
        used |= set(re.findall(rf"\b{role}_\w+", text))
        for task in load(file):
            for action in (name for name in task if name.startswith("gpufleet.nvidia.")):
                known = options(action.removeprefix("gpufleet.nvidia."))
                for option, value in task[action].items():
                    variable = re.fullmatch(rf"{{{{ ({role}_\w+)( \| default\(omit, true\))? }}}}", str(value))
                    if variable:
                        ours, theirs = spec[variable.group(1)], known[option]
                        assert ours["type"] == theirs["type"], option
                        assert ours.get("elements") == theirs.get("elements"), option
                        assert ours.get("choices") == theirs.get("choices"), option
    assert set(spec) - used == set(), "variables that no task uses"


BOOL = {"type": "bool", "default": True}


@pytest.mark.parametrize(
    ("spec", "defaults", "difference"),
    [
        ({"x_wait": BOOL}, {"x_wait": 1}, "x_wait: default True in its spec, 1 in defaults/main.yml"),
        ({"x_wait": BOOL}, {"x_wait": False}, "x_wait: default True in its spec, False in defaults/main.yml"),
        ({"x_wait": BOOL}, {}, "x_wait: its spec has a default, defaults/main.yml has not"),
        ({"x_wait": BOOL}, {"x_wait": True, "x_more": 1}, "x_more: a default without an argument spec"),
        (
            {"x_wait": BOOL | {"default": "yes"}},
            {"x_wait": "yes"},
            "x_wait: bool in its spec, but the default is 'yes'",
        ),
        (
            {"x_mode": {"type": "str", "default": "c", "choices": ["a", "b"]}},
            {"x_mode": "c"},
            "x_mode: the default 'c' is not one of its choices",
        ),
        ({"x_wait": {"type": "bool"}}, {}, "x_wait: neither required nor with a default"),
        (
            {"x_wait": {"type": "bool", "required": True}},
            {"x_wait": True},
            "x_wait: defaults/main.yml has a default, its spec has not",
        ),
    ],
)
def test_a_difference_is_found(spec: dict[str, Any], defaults: dict[str, Any], difference: str) -> None:
    assert differences(spec, defaults) == [difference]
