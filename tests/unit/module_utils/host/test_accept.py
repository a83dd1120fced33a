# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words of ``accept``: each module of a host refuses those that name none of its findings, before all else."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._cuda import _toolkit
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host import _run as _dcgm
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._accept import ACCEPTABLE
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes import _run as _runtimes
from ansible_collections.gpufleet.nvidia.tests.helpers.documents import CHECKOUT

USUAL = {"root": "/", "runtime_name": "nvidia", "runtime_path": "/x", "default_runtime": None, "cdi": False}


def quiet(line: str) -> None: ...


def container_toolkit(params: Mapping[str, Any]) -> object:
    options = {**USUAL, "runtimes": [], "restart_timeout": 60, **params}
    return _runtimes.container_toolkit(options, True, quiet, _runtimes.Tools())


def cuda_toolkit(params: Mapping[str, Any]) -> object:
    return _toolkit.cuda_toolkit(params, True, _toolkit.Tools())


def dcgm_exporter(params: Mapping[str, Any]) -> object:
    # A host that systemd does not run is refused after the words.
    return _dcgm.dcgm_exporter(params, True, quiet, _dcgm.Tools(has_systemd=lambda: False))


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("run", [container_toolkit, cuda_toolkit, dcgm_exporter])
def test_a_word_that_is_no_finding_is_refused_with_those_that_are(
    run: Callable[[Mapping[str, Any]], object], state: str
) -> None:
    with pytest.raises(Failure) as failure:
        run({"state": state, "accept": ["held", "Held"]})
    (found,) = failure.value.result.findings
    assert (found.id, found.severity, found.path) == ("no_finding", "error", "accept[1]")
    allowed = ", ".join(ACCEPTABLE[run.__name__])
    assert found.detail == f"'Held' is no finding that can be accepted; allowed are {allowed}"
    assert failure.value.msg.startswith("Refused, nothing has been changed.")


#: Module -> its sources below module_utils, and the rules of the version matrix for its part.
SOURCES = {
    "container_toolkit": (["_runtimes/*.py", "_host/_packages/_sources.py"], []),
    "cuda_toolkit": (["_cuda/*.py", "_host/_package_set.py"], ["_cuda", "_newer_cuda"]),
    "dcgm_exporter": (["_dcgm_host/*.py", "_host/_package_set.py"], ["_dcgm"]),
}


@pytest.mark.parametrize("module", list(SOURCES))
def test_the_words_of_a_module_are_those_of_its_findings(module: str) -> None:
    """By the source: a new finding must not be forgotten in the list, nor a word stay longer than its finding."""
    globs, rules = SOURCES[module]
    folder = CHECKOUT / "plugins/module_utils"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for glob in globs for path in folder.glob(glob)]
    words = {word for tree in trees for node in ast.walk(tree) for word in asked_for(node)}
    matrix = ast.parse((folder / "_matrix/_judge.py").read_text(encoding="utf-8"))
    for rule in (one for one in matrix.body if isinstance(one, ast.FunctionDef) and one.name in rules):
        calls = [node for node in ast.walk(rule) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Verdict"]
        words |= {call.args[4].value for call in calls if len(call.args) > 4 and isinstance(call.args[4], ast.Constant)}
    assert words == set(ACCEPTABLE[module])


def asked_for(node: ast.AST) -> set[str]:
    """A word that a finding gives for accept, or that is looked for among those that are accepted."""
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
        return {node.left.value} if "accept" in ast.unparse(node.comparators[0]) else set()
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
        return {one.value.value for one in node.keywords if one.arg == "accept" and isinstance(one.value, ast.Constant)}
    return set()
