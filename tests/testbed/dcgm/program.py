# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for nv-hostengine and dcgm-exporter on a test host; which of them, its own name tells.

GPUs, MIG instances, memory and the driver come from NVML; what NVML's double does not tell (clocks, temperatures) is
made up. As with the real ones: the counters file is read as CSV with three parts a line, an unknown field ends the
exporter, GPUs are those of its start, profiling fields of Ampere and older need the closed module, and fields that a
GPU has not are passed over. It knows nothing of the collection.
"""

from __future__ import annotations

import base64
import csv
import http.server
import json
import os
import socket
import socketserver
import ssl
import sys

import pynvml

ENGINE = ("127.0.0.1", 5555)
CLOSED_MODULE = "/usr/lib/x86_64-linux-gnu/dcgm-proprietary"
DEV, PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"
# Field -> where its value comes from; a number is made up. None: known, and no GPU here has it.
FIELDS = {
    DEV + "SM_CLOCK": 1980, DEV + "MEM_CLOCK": 2619, DEV + "GPU_TEMP": 33, DEV + "POWER_USAGE": 71.5,
    DEV + "BOARD_POWER_WATTS": 71.5, DEV + "TOTAL_ENERGY_CONSUMPTION": 12345, DEV + "PCIE_REPLAY_COUNTER": 0,
    DEV + "XID_ERRORS": 0, DEV + "FB_FREE": "free", DEV + "FB_USED": "used", DEV + "FB_RESERVED": 512,
    DEV + "UNCORRECTABLE_REMAPPED_ROWS": "rows", DEV + "CORRECTABLE_REMAPPED_ROWS": "rows",
    DEV + "ROW_REMAP_FAILURE": "rows", DEV + "GPU_UTIL": "util", DEV + "MEM_COPY_UTIL": "util",
    DEV + "ENC_UTIL": "util", DEV + "DEC_UTIL": "util", DEV + "MEMORY_TEMP": "hbm",
    DEV + "NVLINK_BANDWIDTH_TOTAL": "nvlink", DEV + "VGPU_LICENSE_STATUS": None, DEV + "RETIRED_SBE": None,
    DEV + "FAN_SPEED": None, DEV + "NVSWITCH_POWER_VDD": None, DEV + "PSTATE": None, "DCGM_FI_DRIVER_VERSION": "driver",
    PROF + "GR_ENGINE_ACTIVE": "profile", PROF + "PIPE_TENSOR_ACTIVE": "profile", PROF + "DRAM_ACTIVE": "profile",
    PROF + "PCIE_TX_BYTES": "profile", PROF + "PCIE_RX_BYTES": "profile", "DCGM_EXP_XID_ERRORS_COUNT": None,
}  # fmt: skip
TYPES = ("gauge", "counter", "histogram", "summary", "label")
PER_INSTANCE = ("free", "used", "profile")


def die(words: str) -> None:
    sys.exit(f'level=ERROR msg="{words}"')


# --- GPUs -------------------------------------------------------------------------------------------------------------


def look() -> dict:
    """What NVML tells now."""
    pynvml.nvmlInit()
    gpus = [gpu(pynvml.nvmlDeviceGetHandleByIndex(index), index) for index in range(pynvml.nvmlDeviceGetCount())]
    return {"driver": text(pynvml.nvmlSystemGetDriverVersion()), "gpus": gpus}


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def gpu(handle: object, index: int) -> dict:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = text(pynvml.nvmlDeviceGetName(handle))
    old = pynvml.nvmlDeviceGetArchitecture(handle) <= pynvml.NVML_DEVICE_ARCH_AMPERE
    try:
        nvlink = bool(pynvml.nvmlDeviceGetNvLinkState(handle, 0) + 1)
    except pynvml.NVMLError:
        nvlink = False
    return {
        "gpu": index, "UUID": text(pynvml.nvmlDeviceGetUUID(handle)), "name": name, "nvlink": nvlink,
        "free": memory.free >> 20, "used": memory.used >> 20, "instances": instances(handle),
        "remapping": pynvml.nvmlDeviceGetArchitecture(handle) >= pynvml.NVML_DEVICE_ARCH_AMPERE,
        "profile": not old or os.path.exists(CLOSED_MODULE), "hbm": any(one in name for one in ("H100", "A100", "A30")),
    }  # fmt: skip


def instances(handle: object) -> list | None:
    """Ids of the GPU instances; None where MIG is off."""
    try:
        if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
    except pynvml.NVMLError:
        return None
    found = set()
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError:
            continue
        found.add(pynvml.nvmlDeviceGetGpuInstanceId(device))
    return sorted(found)


# --- The host engine --------------------------------------------------------------------------------------------------


class Asked(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(json.dumps(look()).encode())


def engine() -> None:
    look()  # without a driver it does not start
    socketserver.TCPServer.allow_reuse_address = True
    with socketserver.TCPServer(ENGINE, Asked) as server:
        server.serve_forever()


def remote(address: str) -> dict:
    host, _colon, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        return json.loads(connection.makefile().read())


# --- The exporter -----------------------------------------------------------------------------------------------------


def counters(path: str) -> list[tuple[str, str, str]]:
    try:
        with open(path, newline="") as file:
            rows = list(csv.reader((line for line in file if not line.startswith("#")), strict=True))
    except (OSError, csv.Error) as error:
        die(f"Could not read metrics file '{path}'; err: {error}")
    found = []
    for number, row in enumerate(rows):
        row = [part.strip(" ") for part in row]
        if not row:
            continue
        if len(row) != 3:
            die(f"malformed CSV record; err: failed to parse line {number} (`{row}`), expected 3 fields")
        if row[0] not in FIELDS:
            die(f"could not find DCGM field; err: unknown ExporterCounter field '{row[0]}'")
        if row[1] not in TYPES:
            die(f"could not find Prometheus metric type '{row[1]}'")
        found.append(tuple(row))
    return found


class Exporter:
    def __init__(self) -> None:
        self.engine = os.environ.get("DCGM_REMOTE_HOSTENGINE_INFO", "")
        self.wanted = counters(os.environ["DCGM_EXPORTER_COLLECTORS"])
        try:
            self.seen = self.read()
        except (OSError, pynvml.NVMLError) as error:
            die(f"Error connecting to nv-hostengine: {error}")

    def read(self) -> dict:
        return remote(self.engine) if self.engine else look()

    def metrics(self) -> str:
        """Memory of now, on the GPUs and instances of the start."""
        now = {one["UUID"]: one for one in self.read()["gpus"]}
        lines = []
        for field, kind, words in self.wanted:
            if kind == "label":
                continue
            samples = [line for one in self.seen["gpus"] for line in self.of(one, now.get(one["UUID"], one), field)]
            if samples:
                lines += [f"# HELP {field} {words}", f"# TYPE {field} {kind}", *samples]
        return "\n".join(lines) + "\n"

    def of(self, start: dict, now: dict, field: str) -> list[str]:
        source = FIELDS[field]
        sliced = start["instances"] is not None
        value = {
            "free": now["free"], "used": now["used"], "rows": 0 if now["remapping"] else None, "driver": None,
            "util": None if sliced else 0, "hbm": 40 if now["hbm"] else None, "nvlink": 7 if now["nvlink"] else None,
            "profile": 0.25 if now["profile"] else None, None: None,
        }.get(source, source)  # fmt: skip
        if value is None:
            return []
        if not (sliced and source in PER_INSTANCE):
            return [self.sample(start, field, value)]
        return [self.sample(start, field, value, GPU_I_ID=str(one), GPU_I_PROFILE="1g") for one in start["instances"]]

    def sample(self, one: dict, field: str, value: object, **more: str) -> str:
        labels = {
            "gpu": str(one["gpu"]),
            "UUID": one["UUID"],
            "device": f"nvidia{one['gpu']}",
            "modelName": one["name"],
        }
        labels |= {"hostname": socket.gethostname(), **more}
        if any(kind == "label" for _field, kind, _words in self.wanted):
            labels["DCGM_FI_DRIVER_VERSION"] = self.seen["driver"]
        told = ",".join(f'{name}="{words}"' for name, words in labels.items())
        told = ",".join(f'{name}="{words}"' for name, words in labels.items())
        return f"{field}{{{told}}} {value}"


def handler(exporter: Exporter, users: dict) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            name = base64.b64decode(given.removeprefix("Basic ") or "").decode().partition(":")[0]
            if users and name not in users:
                return self.answer(401, "Unauthorized\n")
            if self.path == "/metrics":
                return self.answer(200, exporter.metrics())
            return self.answer(*((200, "OK\n") if self.path == "/health" else (404, "nothing is here\n")))

        def answer(self, code: int, words: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(words.encode())

        def log_message(self, *words: object) -> None:
            """Scrapes are not written down."""

    return Handler


def serve() -> None:
    exporter = Exporter()
    host, _colon, port = os.environ.get("DCGM_EXPORTER_LISTEN", ":9400").rpartition(":")
    web = os.environ.get("DCGM_EXPORTER_WEB_CONFIG_FILE", "")
    config: dict = {}
    if web:
        with open(web) as file:
            config = json.loads("".join(line for line in file if not line.startswith("#")))
    server = http.server.ThreadingHTTPServer((host, int(port)), handler(exporter, config.get("basic_auth_users", {})))
    if "tls_server_config" in config:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(config["tls_server_config"]["cert_file"], config["tls_server_config"]["key_file"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print('level=INFO msg="Starting webserver"', flush=True)
    server.serve_forever()


if __name__ == "__main__":
    engine() if "hostengine" in os.path.basename(sys.argv[0]) else serve()
