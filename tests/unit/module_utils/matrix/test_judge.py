# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole set of versions is judged as one; every refusal quotes the row of the matrix that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._matrix import FitSet, extended, judge

DAY = "2026-11-27"
HERE = FitSet(
    driver="595.91.07",
    flavour="open",
    architectures=("hopper",),
    products=("H200 SXM 141GB",),
    fabric_manager="595.91.07",
    imex="595.91.07",
    toolkit=dict.fromkeys(("nvidia-container-toolkit", "libnvidia-container1"), "1.20.2-1"),
    cuda="13.2",
    plugin="v0.20.0",
    dcgm="4.6.0",
    kubernetes="v1.36.3",
    kernel="6.8.0-45-generic",
    os="ubuntu 24.04",
    gds="2.29.4",
)


def but(**other: Any) -> FitSet:
    """The set that fits, with other values."""
    return FitSet(**{**HERE.__dict__, **other})


def alone(**values: Any) -> FitSet:
    return FitSet(**values)


@pytest.mark.rows("S36")
def test_a_set_that_fits_has_nothing_against_it() -> None:
    assert judge(HERE, today=DAY) == []
    assert judge(FitSet()) == []


# Set, then id, severity, what the message names, what the row quotes, how it is accepted.
REFUSALS = [
    (but(fabric_manager="595.45.04"), "fabric_manager_differs", "error", "595.45.04", "exactly", ""),
    (but(imex="590.48.01"), "imex_differs", "error", "590.48.01", "exactly", ""),
    (
        but(toolkit={"nvidia-container-toolkit": "1.20.2", "libnvidia-container1": "1.19.0"}),
        "toolkit_mixed", "error", "libnvidia-container1 1.19.0", "of one version", "",
    ),
    (
        but(toolkit={"nvidia-container-toolkit": "1.17.4-1"}),
        "insecure_version", "error", "nvidia-container-toolkit 1.17.4-1", "CVE-2025-23266", "insecure_version",
    ),
    (
        alone(driver="470.82.01", cuda="11.4", architectures=("ampere",)),
        "end_of_life", "error", "use 620 (until 2029-09) or 580 (until 2028-06) or 595 (until 2027-03)",
        "branch 470: legacy, end of life, CUDA up to 11.4", "end_of_life",
    ),
    (
        alone(driver="470", architectures=("kepler",)),
        "end_of_life", "error", "no branch that lives drives these GPUs", "branch 470", "end_of_life",
    ),
    (
        alone(driver="550.54.14", architectures=("volta",)),
        "end_of_life", "warning", "use 580 (until 2028-06)", "branch 550: production branch", "end_of_life",
    ),
    (alone(driver="601.10"), "branch_unknown", "error", "601", "580, 590, 595", "branch_unknown"),
    (alone(driver="595.91.07", architectures=("volta",)), "gpu_too_old", "error", "580 is the last", "volta: ", ""),
    (alone(driver="580", architectures=("kepler",)), "gpu_too_old", "error", "470 is the last", "up", ""),
    (alone(driver="550", architectures=("blackwell",)), "gpu_too_new", "error", "570 is the first", "blackwell: ", ""),
    (alone(driver="595", architectures=("rubin",)), "gpu_too_new", "error", "the newest branch may", "rubin: ", ""),
    (alone(architectures=("thor",)), "gpu_without_driver", "error", "of their own", "Jetson", ""),
    (alone(architectures=("tesla",)), "gpu_unknown", "error", "'tesla'", "turing", ""),
    (
        alone(driver="570.86", flavour="open", architectures=("blackwell",), products=("B200",)),
        "gpu_too_new", "error", "570.133.20 is the first", "B200: blackwell (10.0)", "",
    ),
    (
        alone(driver="570.86", architectures=("blackwell",), products=("B300 SXM6",)),
        "gpu_too_new", "error", "575 is the first", "B300: ", "",
    ),
    (
        alone(architectures=("volta", "blackwell")),
        "gpus_do_not_mix", "error", "blackwell needs the open modules and volta needs the proprietary", "volta: ", "",
    ),
    (
        alone(flavour="open", architectures=("turing", "volta")),
        "flavour_does_not_fit", "error", "volta GPUs need the proprietary", "volta: ", "",
    ),
    (
        alone(flavour="proprietary", architectures=("grace-hopper",)),
        "flavour_does_not_fit", "error", "grace-hopper GPUs need the open", "grace-hopper: ", "",
    ),
    (
        alone(driver="620", flavour="proprietary", architectures=("turing",)),
        "flavour_not_made", "error", "branch 620 has no proprietary", "branch 620: ", "",
    ),
    (alone(driver="570.133.20", cuda="13.0"), "driver_too_old", "error", "needs driver 580", "CUDA 13.0: ", ""),
    (alone(driver="525.53", cuda="12.4"), "driver_too_old", "error", "needs driver 525.60.13", "CUDA 12.4: ", ""),
    (
        alone(driver="580.95.05", cuda="13.2.1"),
        "cuda_newer_than_driver", "warning", "branch 595 has all of it", "CUDA 13.2: ", "",
    ),
    (alone(driver="595", cuda="14.0"), "cuda_unknown", "error", "up to 13.2", "branch 595", "cuda_unknown"),
    (
        alone(driver="580", cuda="13.0", architectures=("volta",)),
        "cuda_without_gpu", "error", "use CUDA 12.9 or older", "not for maxwell, pascal, volta", "",
    ),
    (
        alone(driver="580.95.05", dcgm="3.3.9"),
        "dcgm_too_old", "error", "CUDA 13.0", "DCGM 3.3: CUDA 11, 12", "dcgm_too_old",
    ),
    (alone(driver="580.95.05", dcgm="9.0.1"), "dcgm_unknown", "warning", "9.0.1", "4.6", "dcgm_unknown"),
    (alone(kubernetes="v1.29.4"), "kubernetes_too_old", "error", "1.29", "Kubernetes: from 1.32 on", ""),
    (
        alone(kubernetes="1.37.0+k3s1", plugin="0.20.0"),
        "kubernetes_not_validated", "warning", "1.37", "release v26.7.0: Kubernetes 1.32, 1.33", "",
    ),
    (
        alone(driver="595", flavour="open", kernel="4.14.355-275.amzn2"),
        "kernel_too_old", "error", "4.14.355", "from 4.15 on", "",
    ),
    (
        alone(driver="570", os="ubuntu 26.04"),
        "system_too_new", "error", "kernel 7.0", "ubuntu 26.04: kernel 7.0", "",
    ),
    (
        alone(driver="580", os="ubuntu 26.04"),
        "driver_older_than_kernel", "warning", "see that its module builds", "from 595 on", "driver_older_than_kernel",
    ),
    (
        alone(driver="580", flavour="proprietary", gds="2.17.5"),
        "gds_needs_open", "error", "nvidia-fs 2.17.5", "from 2.17.5 on", "",
    ),
]  # fmt: skip


@pytest.mark.rows("H004", "H005", "H006", "S36")
@pytest.mark.parametrize(("wanted", "id", "severity", "message", "row", "accept"), REFUSALS)
def test_what_does_not_fit_is_told_with_its_row(
    wanted: FitSet, id: str, severity: str, message: str, row: str, accept: str
) -> None:
    found = [verdict for verdict in judge(wanted, today=DAY) if verdict.id == id]
    assert len(found) == 1
    assert (found[0].severity, found[0].accept) == (severity, accept)
    assert message in found[0].message
    assert row in found[0].row


FITS = [
    alone(driver="535.309.01", cuda="12.9", architectures=("volta",), flavour="proprietary"),
    alone(driver="580", flavour="proprietary", architectures=("volta", "turing")),
    alone(driver="595", fabric_manager="595.91.07"),
    alone(driver="570.133.20", flavour="open", architectures=("blackwell",), products=("B200",)),
    alone(driver="570", architectures=("blackwell",), products=("B200",)),
    alone(driver="580", flavour="proprietary", kernel="4.14.1"),
    alone(driver="580", flavour="proprietary", gds="2.17.4"),
    alone(driver="595", dcgm="4.5.3"),
    alone(driver="620", flavour="open", architectures=("rubin", "newer", "turing")),
]


@pytest.mark.rows("S36")
@pytest.mark.parametrize("wanted", FITS)
def test_what_fits_is_not_refused(wanted: FitSet) -> None:
    assert [verdict for verdict in judge(wanted, today=DAY) if verdict.severity == "error"] == []


def test_a_text_that_is_no_version_of_the_driver_is_named() -> None:
    with pytest.raises(ValueError, match="'newest' is no version of the driver"):
        judge(FitSet(driver="newest"))


# -- rows of a user ------------------------------------------------------------------------------------------------

GPUS = {"oldest": "turing", "newest": "newer", "flavours": ["open"]}
NEW_BRANCH = {"kind": "PB", "end": "2028-01", "cuda": "13.6", **GPUS}


@pytest.mark.rows("H006", "S36")
def test_a_user_adds_a_branch() -> None:
    own = extended({"branches": {"630": NEW_BRANCH}, "cuda": {"13.6": {"minimum": "580", "branch": 630}}})
    wanted = FitSet(driver="630.10", cuda="13.6", flavour="open", architectures=("blackwell",))
    assert [verdict.id for verdict in judge(wanted, today=DAY)] == ["branch_unknown"]
    assert judge(wanted, own, DAY) == []
    (verdict,) = judge(wanted, own, "2028-02-01")
    assert verdict.row == (
        "branch 630: production branch, until 2028-01, CUDA up to 13.6, GPUs turing to newer, kernel modules open "
        "[your inventory]"
    )


@pytest.mark.rows("H006")
def test_a_user_has_support_for_longer() -> None:
    wanted = FitSet(driver="535.309.01")
    assert [verdict.id for verdict in judge(wanted, today=DAY)] == ["end_of_life"]
    assert judge(wanted, extended({"branches": {535: {"end": "2027-06"}}}), DAY) == []


@pytest.mark.rows("S36")
def test_a_user_raises_a_floor() -> None:
    wanted = FitSet(toolkit={"nvidia-container-toolkit": "1.19.0"})
    assert judge(wanted) == []
    (verdict,) = judge(wanted, extended({"limits": {"toolkit": "1.20.2"}}))
    assert "from 1.20.2 on" in verdict.row


@pytest.mark.rows("S36")
def test_a_user_adds_a_product_and_a_dcgm() -> None:
    own = extended(
        {
            "products": {"X999": {"architecture": "newer", "first": "620.20"}},
            "dcgm": {"4.9": {"cuda": [13], "exporters": ["4.9.0-5.0.0"]}},
        }
    )
    wanted = FitSet(driver="620.10", products=("X999 96GB",), dcgm="4.9.1")
    assert [verdict.id for verdict in judge(wanted, own, DAY)] == ["gpu_too_new"]


WRONG: list[tuple[Any, str, str]] = [
    ({"branch": {}}, "matrix: 'branch'", "branches, cuda, products, dcgm, limits"),
    ({"branches": []}, "matrix.branches: []", "a map"),
    ({"branches": {"63": NEW_BRANCH}}, "matrix.branches: '63'", "like 630"),
    ({"branches": {580: "LTSB"}}, "matrix.branches.580: 'LTSB'", "kind, end"),
    ({"branches": {580: {"eol": "2028-08"}}}, "matrix.branches.580: 'eol'", "kind, end"),
    ({"branches": {580: {"end": "2028-13"}}}, "matrix.branches.580.end: '2028-13'", '"2028-06"'),
    ({"branches": {580: {"end": 2028}}}, "matrix.branches.580.end: 2028", "in quotes"),
    ({"branches": {580: {"kind": "ERD"}}}, "matrix.branches.580.kind: 'ERD'", "LTSB, PB, NFB, legacy"),
    ({"branches": {580: {"cuda": 13.0}}}, "matrix.branches.580.cuda: 13.0", "in quotes"),
    ({"branches": {580: {"newest": "rubens"}}}, "matrix.branches.580.newest: 'rubens'", "rubin"),
    ({"branches": {580: {"flavours": ["free"]}}}, "matrix.branches.580.flavours: ['free']", "open, proprietary"),
    ({"branches": {580: {"flavours": []}}}, "matrix.branches.580.flavours: []", "open, proprietary"),
    ({"branches": {580: {"oldest": "rubin"}}}, "matrix.branches.580.newest: 'blackwell'", "rubin, or"),
    ({"branches": {"630": {"kind": "PB"}}}, "matrix.branches.630", "missing here: cuda, oldest, newest, flavours"),
    ({"cuda": {13.6: {}}}, "matrix.cuda: 13.6", "like 13.6"),
    ({"cuda": {"13.6": {"minimum": "new", "branch": 630}}}, "matrix.cuda.13.6.minimum: 'new'", "595.91.07"),
    ({"cuda": {"13.6": {"minimum": "580", "branch": True}}}, "matrix.cuda.13.6.branch: True", "a branch"),
    ({"dcgm": {"4.7": {"cuda": ["13"]}}}, "matrix.dcgm.4.7.cuda: ['13']", "majors"),
    ({"products": {"X": {"first": "620"}}}, "matrix.products.X", "missing here: architecture"),
    ({"limits": {"toolkits": "1.2"}}, "matrix.limits: 'toolkits'", "toolkit, kubernetes"),
    ({"limits": {"toolkit": 1.2}}, "matrix.limits.toolkit: 1.2", "in quotes"),
]


@pytest.mark.rows("S36")
@pytest.mark.parametrize(("extra", "where", "allowed"), WRONG)
def test_what_a_user_may_not_write_is_named(extra: Any, where: str, allowed: str) -> None:
    with pytest.raises(ValueError, match="is not allowed here; allowed: ") as caught:
        extended(extra)
    before, _told, after = str(caught.value).partition("; allowed: ")
    assert before.startswith(where)
    assert allowed in after
