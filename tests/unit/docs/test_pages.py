# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages tell people to type exists: playbooks, modules, roles, variables, keys of the policy, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._schema import TABLE

ROOT = Path(__file__).resolve().parents[3]
PAGES = {
    path.name: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
WHY = PAGES["why-and-when.md"]
FILES = {"playbooks": "*.yml", "plugins/modules": "*.py", "roles": "*"}
NAMES = {path.stem for folder, names in FILES.items() for path in (ROOT / folder).glob(names)}


def variables() -> set[str]:
    """Options of all roles, and what playbooks and inventories take besides."""
    found: set[str] = set()
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        specs: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.update(name for entry in specs["argument_specs"].values() for name in entry["options"])
    for path in [*(ROOT / "playbooks").glob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")]:
        found.update(re.findall(r"\bgpufleet_\w+", path.read_text(encoding="utf-8")))
    return found


def table(title: str) -> list[list[str]]:
    section = WHY.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_collection_exist(page: str) -> None:
    named = set(re.findall(r"gpufleet\.nvidia\.(\w+)(?![\w.]*@)", PAGES[page]))
    assert named - NAMES == set()


@pytest.mark.parametrize("page", PAGES)
def test_variables_exist(page: str) -> None:
    assert set(re.findall(r"\bgpufleet_\w+", PAGES[page])) - variables() == set()


def groups_of(inventory: Any) -> set[str]:
    """Names of all groups, also of those within others."""
    return {
        one for name, group in (inventory or {}).items() for one in (name, *groups_of((group or {}).get("children")))
    }


@pytest.mark.parametrize("page", PAGES)
def test_plays_are_for_groups_of_the_inventories(page: str) -> None:
    known = {"localhost"}
    for path in (ROOT / "inventories").glob("*/hosts.yml"):
        known |= groups_of(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert {"gpu_clusters", "gpu_hosts"} <= known
    blocks = re.findall(r"^( *)```ya?ml\n(.*?)^\1```", PAGES[page], re.MULTILINE | re.DOTALL)
    named = {name for _indent, block in blocks for name in re.findall(r"^[ -]*hosts: *(\S.*)$", block, re.MULTILINE)}
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = ROOT if page == "README.md" else ROOT / "docs"
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]) if "://" not in link]
    assert [link for link in links if link and not (folder / link).exists()] == []


@pytest.mark.rows("S66")
def test_neighbours_and_what_is_left_to_them() -> None:
    told = " ".join(row[0] for row in table("What it does not do"))
    for neighbour in ("Network Operator", "Kubeflow", "Volcano", "YuniKorn", "AMD", "vGPU licence server"):
        assert neighbour in told


@pytest.mark.rows("S66")
def test_when_the_operator_is_better_names_what_is_refused() -> None:
    """What the operator has and a policy here is refused for stands on the page."""
    section = WHY.split("## When the GPU Operator is the better choice\n", 1)[1].split("\n## ", 1)[0]
    refused = {key.note.split(" is not supported yet")[0].split(" are not")[0] for key in TABLE if key.switch}
    words = {
        "OpenShift": "OpenShift",
        "Sandbox workloads": "virtual machines",
        "Dynamic resource allocation": "Dynamic Resource Allocation",
        "NVIDIADriver objects": "`NVIDIADriver`",
    }
    assert refused, "no key is refused: the page has nothing to say"
    for cause in refused:
        told = [word for start, word in words.items() if cause.startswith(start)]
        assert [word in section for word in told] == [True], cause


@pytest.mark.rows("S66")
def test_the_cookbook_sets_our_commands_beside_theirs() -> None:
    rows = table("Cookbook")
    assert len(rows) >= 12
    assert all(len(row) == 2 and all(row) for row in rows)
    assert {"helm", "kubectl", "nvidia-ctk", "nvidia-mig-parted", "nvidia-smi"} <= {
        re.split(r"[ `]", row[0].lstrip("`"))[0] for row in rows
    }
    keys = {part for key in TABLE for part in key.path.split(".")} | variables() | {"query", "name", "gpus", "mig"}
    for row in rows:
        for code in re.findall(r"`([^`]+)`", row[1]):
            for key in re.findall(r"\b(\w+): ", code):
                assert key in keys, (key, row)


@pytest.mark.rows("S66")
def test_four_questions_are_answered() -> None:
    section = WHY.split("## Four questions that people ask\n", 1)[1].split("\n## ", 1)[0]
    answers = dict(re.findall(r"\*\*([^*]+\?)\*\* (.+?)(?=\n\n|\Z)", section, re.DOTALL))
    assert len(answers) == 4
    assert min(len(answer.split()) for answer in answers.values()) > 15
