# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the exporter gives is read as Prometheus reads it; what does not come is explained by the hardware, or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host import _absent, _scrape
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._counters import Counter
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._facts import Facts, Gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._scrape import NoMetrics

TEXT = """\
# HELP DCGM_FI_DEV_GPU_TEMP Temperature
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",modelName="NVIDIA \\"X\\", 80GB",DCGM_FI_DRIVER_VERSION="580.1",Hostname=""} 3
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-2",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",hostname="a"} 0.25 1700000000
DCGM_FI_DEV_NVLINK_BANDWIDTH_L0{gpu_uuid="GPU-3",nvlink="0"} 1e+06
process_cpu_seconds_total 1
"""


@pytest.mark.rows("H092")
def test_names_gpus_instances_and_driver_are_read() -> None:
    found = _scrape.parse(TEXT)
    assert {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE", "process_cpu_seconds_total"} <= found.names
    assert found.gpus == {"GPU-1", "GPU-2", "GPU-3"}
    assert found.instances == {("GPU-2", 7)}
    assert found.driver == "580.1"
    assert {"Hostname", "hostname"} <= found.labels  # both spellings


def test_the_address_to_ask_is_this_host() -> None:
    asked = {
        ":9400": "127.0.0.1:9400",
        "0.0.0.0:9400": "127.0.0.1:9400",
        "[::]:1": "[::1]:1",
        "192.0.2.1:2": "192.0.2.1:2",
    }
    assert {address: _scrape.where(address) for address in asked} == asked


class Answers(BaseHTTPRequestHandler):
    codes: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(TEXT.encode() if code == 200 else b"no")

    def log_message(self, *words: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_is_asked_until_everything_is_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:1")  # never asked for the host's own address
    monkeypatch.setattr(_scrape, "_PAUSE", 0.01)
    Answers.codes = [500, 200]

    def ask() -> _scrape.Metrics | None:
        return _scrape.fetch(url)

    found = _scrape.wait(ask, ["DCGM_FI_DEV_GPU_TEMP"], lambda now: bool(now.gpus), 5, lambda: "")
    assert found is not None
    assert found.gpus
    late = _scrape.wait(ask, ["DCGM_FI_DEV_FB_USED"], lambda now: True, 0.05, lambda: "")
    assert late is not None
    assert "DCGM_FI_DEV_FB_USED" not in late.names
    Answers.codes = [401]
    assert _scrape.fetch(url) is None
    Answers.codes = [503]
    with pytest.raises(NoMetrics, match="answers 503"):
        _scrape.wait(ask, [], lambda now: True, 0.05, lambda: "")
    with pytest.raises(NoMetrics, match="it crashed"):
        _scrape.wait(ask, [], lambda now: True, 5, lambda: "it crashed")


def test_nobody_there_is_told() -> None:
    with pytest.raises(NoMetrics, match="does not answer"):
        _scrape.fetch("http://127.0.0.1:9/metrics")


def facts(architecture: str = "hopper", mig: bool = False, nvlink: bool = False, switches: int = 0) -> Facts:
    return Facts("580.1", 13, (Gpu("GPU-1", "X", architecture, mig, (1,) if mig else (), nvlink),), switches)


@pytest.mark.rows("H091", "P120")
@pytest.mark.parametrize(
    ("field", "host", "words"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", facts(mig=True), "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
        ("DCGM_FI_DEV_GPU_UTIL", facts(), ""),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", facts(), "no GPU here has NVLink"),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", facts(nvlink=True), ""),
        ("DCGM_FI_PROF_NVLINK_TX_BYTES", facts(), "no GPU here has NVLink"),
        ("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", facts(), "no NVSwitch"),
        ("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", facts(switches=4), ""),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", facts("volta"), "from Ampere on"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", facts("ampere"), ""),
        ("DCGM_FI_DEV_RETIRED_SBE", facts("hopper"), "no pages retired"),
        ("DCGM_FI_DEV_RETIRED_SBE", facts("volta"), ""),
        ("DCGM_FI_PROF_SM_ACTIVE", facts(), "datacenter-gpu-manager-4-proprietary"),
        ("DCGM_EXP_XID_ERRORS_COUNT", facts(), "first event"),
        ("DCGM_FI_DEV_GPU_TEMP", facts(), ""),
        ("DCGM_FI_DEV_XID_ERRORS", facts(mig=True), ""),
    ],
)
def test_why_a_metric_may_not_come(field: str, host: Facts, words: str) -> None:
    said = _absent.reason(Counter(field, "gauge", "x"), host)
    assert words in said
    assert bool(words) == bool(said)
