# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the exporter's service: units, environment, web configuration. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, Mapping, Tuple

UNIT = "nvidia-dcgm-exporter.service"
ENGINE = "nvidia-dcgm.service"
REFRESH, WATCH = "gpufleet-dcgm-refresh.service", "gpufleet-dcgm-refresh.path"
FOLDER = "/etc/dcgm-exporter"
COUNTERS = f"{FOLDER}/gpufleet-counters.csv"
ENVIRONMENT = f"{FOLDER}/gpufleet.env"
WEB = f"{FOLDER}/gpufleet-web.yml"
UNITS = "/etc/systemd/system"
MARK = "# Made by gpufleet.nvidia.dcgm_exporter"
CONTAINER = "nvidia-dcgm-exporter"
_DEVICES = {"gpus": "--gpus all", "cdi": "--device nvidia.com/gpu=all"}


@dataclass(frozen=True)
class Wanted:
    """What is asked for. ``engine``: address of the host engine, "" for one inside the exporter; ``local``: it is this
    host's own service. ``container``: engine of containers (docker, podman), "" for a program of the host.
    """

    program: str = "/usr/bin/dcgm-exporter"
    container: str = ""
    image: str = ""
    devices: str = "gpus"  # or cdi
    address: str = "127.0.0.1:9400"
    engine: str = "localhost:5555"
    local: bool = True
    interval: int = 30000
    settings: Tuple[Tuple[str, str], ...] = ()
    web: bool = False
    certificate: str = ""  # files of the host that the web configuration names
    key: str = ""


def variables(wanted: Wanted) -> Dict[str, str]:
    """The exporter's environment. A host has no kubelet, so nothing is mapped to pods."""
    made = {
        "DCGM_EXPORTER_LISTEN": wanted.address,
        "DCGM_EXPORTER_COLLECTORS": COUNTERS,
        "DCGM_EXPORTER_INTERVAL": str(wanted.interval),
        "DCGM_EXPORTER_KUBERNETES": "false",
        **({"DCGM_REMOTE_HOSTENGINE_INFO": wanted.engine} if wanted.engine else {}),
        **({"DCGM_EXPORTER_WEB_CONFIG_FILE": WEB} if wanted.web else {}),
        **dict(wanted.settings),
    }
    return dict(sorted(made.items()))


def environment_file(wanted: Wanted) -> str:
    """Read by systemd for a program, and by the engine of containers, which takes every letter as it is."""
    quote = (lambda text: text) if wanted.container else _quoted
    lines = [f"{name}={quote(value)}\n" for name, value in variables(wanted).items()]
    return f"{MARK}\n" + "".join(lines)


def _quoted(text: str) -> str:
    if all(letter.isalnum() or letter in "-_./:,[]" for letter in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`") + '"'


def web_file(certificate: str, key: str, users: Mapping[str, str]) -> str:
    """The web configuration, as all Prometheus exporters read it; JSON is YAML."""
    made: Dict[str, object] = {}
    if certificate:
        made["tls_server_config"] = {"cert_file": certificate, "key_file": key}
    if users:
        made["basic_auth_users"] = dict(sorted(users.items()))
    return f"{MARK}\n{json.dumps(made, indent=2)}\n"


def unit_files(wanted: Wanted) -> Dict[str, str]:
    """Path -> text of every unit."""
    return {
        f"{UNITS}/{UNIT}": _container(wanted) if wanted.container else _program(wanted),
        f"{UNITS}/{REFRESH}": _refresh(wanted),
        f"{UNITS}/{WATCH}": _watch(),
    }


def _order(wanted: Wanted, *more: str) -> str:
    """The exporter goes and comes with the host engine, and comes after what gives GPUs their MIG layout."""
    after = ["network-online.target", "gpufleet-mig-restore.service", *more]
    lines = []
    if wanted.local and wanted.engine:
        after.insert(0, ENGINE)
        lines = [f"Wants={ENGINE}", f"PartOf={ENGINE}"]
    return "\n".join([f"After={' '.join(after)}", *lines, *(f"Requires={unit}" for unit in more)])


def _program(wanted: Wanted) -> str:
    # Profiling metrics need the right only where the host engine is inside. Devices, /proc and /sys stay to be read.
    rights = "" if wanted.engine else "CAP_SYS_ADMIN"
    system = "strict" if wanted.engine else "full"  # the host engine writes below /var
    return f"""{MARK}
[Unit]
Description=NVIDIA DCGM exporter
Documentation=https://docs.nvidia.com/datacenter/dcgm/latest/gpu-telemetry/dcgm-exporter.html
{_order(wanted)}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
EnvironmentFile={ENVIRONMENT}
ExecStart={wanted.program}
Restart=on-failure
RestartSec=5
CapabilityBoundingSet={rights}
NoNewPrivileges=yes
LockPersonality=yes
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem={system}
RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def mounts(wanted: Wanted) -> Tuple[str, ...]:
    """Files and folders of the host that a container has to see."""
    jobs = dict(wanted.settings).get("DCGM_HPC_JOB_MAPPING_DIR", "")
    web = [WEB, wanted.certificate, wanted.key] if wanted.web else []
    return tuple(dict.fromkeys(path for path in (COUNTERS, *web, jobs) if path))


def _container(wanted: Wanted) -> str:
    program = f"/usr/bin/{wanted.container}"
    options = ["--name", CONTAINER, "--rm", "--network", "host", _DEVICES[wanted.devices], "--env-file", ENVIRONMENT]
    options += [] if wanted.engine else ["--cap-add", "SYS_ADMIN"]
    options += [f"--volume {path}:{path}:ro" for path in mounts(wanted)]
    options += ["--replace"] if wanted.container == "podman" else []
    needs = ("docker.service",) if wanted.container == "docker" else ()
    return f"""{MARK}
[Unit]
Description=NVIDIA DCGM exporter, in a container
{_order(wanted, *needs)}
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStartPre=-{program} rm --force {CONTAINER}
ExecStart={program} run {" ".join(options)} {wanted.image}
ExecStop=-{program} stop --time 10 {CONTAINER}
Restart=on-failure
RestartSec=5
TimeoutStartSec=120

[Install]
WantedBy=multi-user.target
"""


def _refresh(wanted: Wanted) -> str:
    """The engine takes the exporter with it; without one of its own the exporter is restarted itself."""
    unit = ENGINE if wanted.local and wanted.engine else UNIT
    return f"""{MARK}: what holds libraries of an earlier driver, or an earlier MIG layout, starts anew.
[Unit]
Description=Restart of DCGM after a change of the driver or of MIG
StartLimitIntervalSec=60
StartLimitBurst=6

[Service]
Type=oneshot
ExecStart=/bin/systemctl --no-block try-restart {unit}
"""


def _watch() -> str:
    return f"""{MARK}: watches for changes of the driver and of MIG.
[Unit]
Description=Changes of the NVIDIA driver and of MIG instances

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/usr/bin/nvidia-smi
PathChanged=/dev/nvidia-caps
Unit={REFRESH}

[Install]
WantedBy=multi-user.target
"""
