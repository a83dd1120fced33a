# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of modules, read from their source without importing them."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]


@lru_cache
def document(module: str, name: str) -> dict[str, Any]:
    """DOCUMENTATION, EXAMPLES or RETURN (``name``) of a module of this collection."""
    return literal(CHECKOUT / "plugins/modules" / f"{module}.py", name)


def literal(path: Path, name: str) -> dict[str, Any]:
    """The YAML in a string that stands at the top level, or in a class, of this file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            found = yaml.safe_load(ast.literal_eval(node.value))
            if not isinstance(found, dict):
                raise ValueError(f"{name} in {path} is not a mapping")
            return found
    raise LookupError(f"{path} has no {name}")


def options(module: str) -> dict[str, dict[str, Any]]:
    """All options of a module, those of its documentation fragments included."""
    documentation = document(module, "DOCUMENTATION")
    found: dict[str, dict[str, Any]] = {}
    for fragment in documentation.get("extends_documentation_fragment") or []:
        if fragment.startswith("gpufleet.nvidia."):
            file, _dot, part = fragment.removeprefix("gpufleet.nvidia.").partition(".")
            path = CHECKOUT / "plugins/doc_fragments" / f"{file}.py"
            found |= literal(path, part.upper() or "DOCUMENTATION").get("options") or {}
    return found | (documentation.get("options") or {})
