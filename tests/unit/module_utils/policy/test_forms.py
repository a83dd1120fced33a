# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms that people wrote: each works or is answered in a sentence; pages made from tables are up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.nvidia.plugins.module_utils._policy._load import load

ROOT = Path(__file__).resolve().parents[4]
FORMS = ROOT / "tests/fixtures/forms"
NAMES = sorted(path.stem for path in FORMS.glob("*.yaml"))


def plain(value: Any) -> Any:
    return [dict(entry) for entry in value] if isinstance(value, tuple) else value


@pytest.mark.rows("S52")
@pytest.mark.parametrize("name", NAMES)
def test_a_form_that_was_written_works_or_is_answered(name: str) -> None:
    form = yaml.safe_load((FORMS / f"{name}.yaml").read_text(encoding="utf-8"))
    policy, findings = load(form.get("source") or {}, set_strings=form.get("set") or [])
    assert (policy is not None) == (form["expect"] == "works"), [f.sentence() for f in findings]
    sentences = [f.sentence() for f in findings if f.severity != "info"]
    if "told" in form:
        assert any(form["told"] in sentence for sentence in sentences)
    else:
        assert sentences == []
    for path, value in (form.get("means") or {}).items():
        found: Any = policy
        for part in path.split("."):
            found = getattr(found, part)
        assert plain(found) == value, path


@pytest.mark.rows("S52")
def test_every_form_of_values_is_there() -> None:
    assert set(NAMES) >= set("abcdefghi") | {"gpuclusterpolicy"}


@pytest.mark.rows("S52")
def test_objects_that_were_written_are_fixtures() -> None:
    kinds = {}
    for path in sorted((FORMS / "objects").glob("*.yaml")):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        kinds[path.stem] = found["kind"]
    assert sorted(kinds.values()) == ["ConfigMap", "Device", "GPUClusterPolicy", "NodePool", "Pod", "Pod", "Pod"]


def test_pages_made_from_the_schema_are_up_to_date() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "scripts/render-docs"), "--check"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
