# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver and what stands on it, judged as one set: as modules will be asked, else as it is on the host."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure, Finding

from .debian_host import OLD, DebianHost
from .test_run import refused

THREE, FOUR = "datacenter-gpu-manager", "datacenter-gpu-manager-4-core"
TOOLKIT = "nvidia-container-toolkit"


def told(host: DebianHost, **options: Any) -> dict[str, Finding]:
    """Findings of a run in check mode, whether it is refused or not."""
    try:
        return {one.id: one for one in host.go(check=True, **options).result.findings}
    except Failure as failure:
        assert host.writes() == []
        return {one.id: one for one in failure.result.findings}


def cuda(host: DebianHost, *minors: str) -> None:
    for minor in minors:
        host.put(f"/usr/local/cuda-{minor}/targets/x86_64-linux/lib/libcudart.so", "")
    host.put("/usr/local/cuda-13.2/bin/left", "")  # of one that went


def have(host: DebianHost, **packages: str) -> None:
    host.installed.update({name.replace("_", "-"): version for name, version in packages.items()})
    host._status()


def asked(**parts: Any) -> dict[str, Any]:
    """The option, as Ansible fills it up."""
    names = ("container_toolkit", "cuda_toolkit", "dcgm_exporter")
    given = {name: parts.get(name, {}) for name in names}
    return {name: {"version": None, "accept": [], **one} for name, one in given.items()}


@pytest.mark.rows("S30", "S36")
def test_a_driver_and_a_cuda_that_do_not_fit_are_refused_on_a_host_that_has_neither(host: DebianHost) -> None:
    host.offer("535.309.01", flavour="proprietary")
    findings = refused(host, branch=535, beside=asked(cuda_toolkit={"version": "13.0"}))
    assert [one.id for one in findings.values() if one.severity == "error"] == ["driver_too_old"]
    assert findings["driver_too_old"].sentence() == (
        "beside.cuda_toolkit.version: CUDA 13.0 needs driver 580 or newer, best branch 580; this is 535.309.01. Ask "
        "cuda_toolkit for another version, or nvidia_driver for another driver. The matrix says: CUDA 13.0: branch "
        "580, shipped with 580.65.06, 580.82.07, 580.95.05, runs from driver 580 on [CUDA pages]"
    )
    fits = told(host, branch=580, beside=asked(cuda_toolkit={"version": "13.0"}))
    assert [one for one in fits.values() if one.severity == "error"] == []
    assert "driver_too_old" not in told(host, branch=535, beside=asked())
    assert "driver_too_old" not in told(host, branch=535)


@pytest.mark.rows("S30")
def test_what_stands_on_a_driver_that_cannot_be_had_is_judged_all_the_same(host: DebianHost) -> None:
    found = refused(host, branch=470, beside=asked(cuda_toolkit={"version": "13.0"}))
    assert {one.id for one in found.values() if one.severity == "error"} == {"gpu_too_new", "driver_too_old"}
    assert found["driver_too_old"].path == "beside.cuda_toolkit.version"


@pytest.mark.rows("S30", "S36")
@pytest.mark.parametrize(
    ("part", "version", "branch", "name", "word"),
    [
        ("cuda_toolkit", "19.0", 580, "cuda_unknown", "cuda_unknown"),
        ("container_toolkit", "1.16.1-1", 580, "insecure_version", "insecure_version"),
        ("dcgm_exporter", "1:3.3.9", 580, "dcgm_too_old", "dcgm_too_old"),
    ],
)
def test_each_part_is_accepted_by_the_words_of_its_own_module(
    host: DebianHost, part: str, version: str, branch: int, name: str, word: str
) -> None:
    options = {"branch": branch, "beside": asked(**{part: {"version": version}})}
    found = refused(host, **options)[name]
    assert (found.path, found.accept) == (f"beside.{part}.version", word)
    assert f", or have {part} accept {word}. The matrix says: " in found.remedy
    taken = told(host, branch=branch, beside=asked(**{part: {"version": version, "accept": [word]}}))
    assert taken[name].severity == "warning"
    # The driver's own words do not reach it: its module would refuse later on.
    assert refused(host, **options, accept=[word])["no_finding"].path == "accept[0]"


@pytest.mark.rows("S30")
def test_what_nobody_asks_for_is_judged_as_it_is_on_the_host(host: DebianHost) -> None:
    host.offer("535.309.01").have(OLD)
    cuda(host, "12.9", "13.0")
    found = refused(host, version="535.309.01", beside=asked())["driver_too_old"]
    assert found.path == "version"
    assert found.detail.startswith("CUDA 13.0 needs driver 580 or newer")
    assert found.accept == "left_behind"
    assert "The matrix says: CUDA 13.0" in found.remedy
    assert told(host, branch=535, beside=asked(), accept=["left_behind"])["driver_too_old"].severity == "warning"
    # Another that is asked for counts instead, and who asks for nothing beside the driver is not stopped by it.
    assert "driver_too_old" not in told(host, branch=535, beside=asked(cuda_toolkit={"version": "12.9"}))
    assert "driver_too_old" not in told(host, branch=535)


@pytest.mark.rows("S30")
def test_what_did_not_fit_before_stops_nobody_who_does_not_ask_for_it(host: DebianHost) -> None:
    host.offer("535.261.03", "535.309.01").have("535.261.03")
    cuda(host, "13.0")
    have(host, nvidia_container_toolkit="1.16.1-1", datacenter_gpu_manager="1:3.3.9")
    found = told(host, version="535.309.01", beside=asked())
    assert {found[name].severity for name in ("driver_too_old", "insecure_version")} == {"warning"}
    assert "dcgm_too_old" not in found
    # What its module is asked to keep has to fit.
    kept = told(host, version="535.309.01", beside=asked(container_toolkit={"version": ""}))
    assert (kept["insecure_version"].severity, kept["insecure_version"].path) == (
        "error", "beside.container_toolkit.version",
    )  # fmt: skip


@pytest.mark.rows("S30")
def test_dcgm_3_goes_where_its_module_is_asked_and_stands_in_the_way_where_not(host: DebianHost) -> None:
    host.offer("535.309.01").have("535.309.01")
    have(host, datacenter_gpu_manager="1:3.3.9")
    assert told(host, branch=580, beside=asked())["dcgm_too_old"].accept == "left_behind"
    assert "dcgm_too_old" not in told(host, branch=580, beside=asked(dcgm_exporter={"version": ""}))
    have(host, datacenter_gpu_manager_4_core="1:9.9.0-1")
    for parts in ({}, {"dcgm_exporter": {"version": ""}}):
        assert told(host, branch=580, beside=asked(**parts))["dcgm_unknown"].detail.startswith("DCGM 9.9.0 is not")
    assert "dcgm_unknown" not in told(host, branch=580, beside=asked(dcgm_exporter={"version": "latest"}))


@pytest.mark.rows("S30")
def test_packages_of_the_toolkit_that_differ_are_no_fault_where_they_get_one_version(host: DebianHost) -> None:
    have(host, nvidia_container_toolkit="1.20.2-1", libnvidia_container1="1.19.0-1")
    assert told(host, branch=580, beside=asked())["toolkit_mixed"].severity == "warning"
    for version in ("", "latest", "1.20.2"):
        assert "toolkit_mixed" not in told(host, branch=580, beside=asked(container_toolkit={"version": version}))


@pytest.mark.rows("S30")
@pytest.mark.parametrize(
    ("part", "version", "allowed", "variable"),
    [
        ("cuda_toolkit", "", "a CUDA minor such as 13.0", "cuda_toolkit_version"),
        ("cuda_toolkit", "latest", "a CUDA minor such as 13.0", "cuda_toolkit_version"),
        ("container_toolkit", "newest", "a version such as 1.18.1, latest, and nothing", "container_toolkit_version"),
        ("dcgm_exporter", "v", "a version such as 4.5.1, latest, and nothing", "dcgm_exporter_dcgm_version"),
    ],
)
def test_a_version_that_is_none_is_refused_with_what_is_allowed(
    host: DebianHost, part: str, version: str, allowed: str, variable: str
) -> None:
    found = refused(host, branch=580, beside=asked(**{part: {"version": version}}))["no_version"]
    assert found.path == f"beside.{part}.version"
    assert found.detail.startswith(f"{version!r} is no version of {part}; allowed is {allowed}")
    assert found.remedy.startswith(f"Set {variable},")


@pytest.mark.rows("S30")
def test_a_word_that_its_module_would_refuse_is_refused_before_the_driver_comes(host: DebianHost) -> None:
    words = asked(cuda_toolkit={"version": "13.0", "accept": ["cuda-unknown"]})
    found = refused(host, branch=580, beside=words)["no_finding"]
    assert found.path == "beside.cuda_toolkit.accept[0]"
    assert found.detail.endswith("allowed are cuda_unknown, held")
    assert "no_finding" not in told(host, state="absent", beside=words)
