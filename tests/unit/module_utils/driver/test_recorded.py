# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run would do to hosts that were recorded: in a tree of files, in check mode. Live: tests/real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver import _found
from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._run import Tools, nvidia_driver
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.returns import undocumented
from ansible_collections.gpufleet.nvidia.tests.real.nvidia_driver_truth import RUNS

from ..host_state import trees
from .debian_host import PARAMS


def run(root: Path, check: bool = True, **params: Any) -> dict[str, Any]:
    outcome = nvidia_driver({**PARAMS, "root": str(root), **params}, check, lambda line: None, Tools())
    return outcome.as_dict()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    monkeypatch.setattr(_found, "_space", lambda place: (100 << 30, False))
    return trees.grow(tmp_path, trees.recorded(request.param))


@pytest.mark.rows("H015", "H020", "P035")
@pytest.mark.parametrize("recorded", ["h100", "2xh200"], indirect=True)
def test_the_plan_for_another_branch_of_a_real_host(recorded: Path) -> None:
    found = run(recorded, branch=595, accept=["driver_of_image"])
    assert undocumented("nvidia_driver", found) == []
    assert found["found"]["driver"]["loaded"] == "580.159.04"
    comes = {action["target"]: action["after"] for action in found["plan"] if action["id"].startswith("package-")}
    assert comes["nvidia-dkms-open"] == comes["nvidia-utils"] == "595.91.07"
    assert "nvidia-driver-open" not in comes  # nothing for displays
    assert "Driver 580.159.04 is loaded, 595.91.07 is wanted." in found["reboot_reasons"]


@pytest.mark.rows("H037", "H038")
@pytest.mark.parametrize("recorded", ["h100"], indirect=True)
def test_what_was_answered_on_a_real_host_is_answered_from_its_files(recorded: Path) -> None:
    """What needs its programs aside, such as NVML, the compiler and apt. Its kernel was a newer one by then."""
    answers = json.loads((trees.RECORDED / "h100/nvidia_driver.json").read_text(encoding="utf-8"))
    given_back = run(recorded, state="absent")
    told = answers["absent"]
    assert (given_back["plan"], given_back["changed"]) == (told["plan"], told["changed"]) == ([], False)
    for answer in (given_back, told):
        for part, name in (("system", "kernel"), ("driver", "state")):
            assert answer["found"][part].pop(name)
        assert answer["found"].pop("secure_boot") in ("disabled", "unknown")  # the tree lacks efivars
    assert given_back["found"] == told["found"]
    for name, options in RUNS.items():
        if options.get("branch") and not options.get("accept"):
            with pytest.raises(Failure) as failure:
                run(recorded, **options)
            mine = {one.id: (one.severity, one.detail) for one in failure.value.result.findings}
            theirs = {one["id"]: (one["severity"], one["detail"]) for one in answers[name]["findings"]}
            assert mine["driver_of_image"] == theirs["driver_of_image"]
            assert mine.get("flavour_not_made") == theirs.get("flavour_not_made")


@pytest.mark.parametrize("recorded", ["h200"], indirect=True)
def test_a_driver_that_no_package_brought_is_not_fought(recorded: Path) -> None:
    with pytest.raises(Failure) as failure:
        run(recorded, branch=595)
    assert [one.id for one in failure.value.result.findings if one.severity == "error"] == ["driver_of_image"]
    assert "(accept: [driver_of_image])" in failure.value.msg
    assert undocumented("nvidia_driver", {**failure.value.as_dict(), "failed": True}) == []
    with pytest.raises(Failure, match="running host only"):
        run(recorded, check=False)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"version": "latest please"}, "no version of the driver"),
        ({"version": "595.91.07", "branch": 580}, "of branch 595, and branch 580 is asked for"),
        ({"companions": ["fabricmanager"]}, "allowed are auto, fabric_manager"),
        ({"kernel": "../x"}, "no release of a kernel"),
        ({"root": "relative"}, "absolute path"),
        ({"branch": 5}, "numbers like 580"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_what_is_allowed(
    tmp_path: Path, params: dict[str, Any], words: str
) -> None:
    with pytest.raises(Failure, match="Refused, nothing has been changed") as failure:
        run(**{"root": tmp_path, **params})
    assert words in failure.value.msg
