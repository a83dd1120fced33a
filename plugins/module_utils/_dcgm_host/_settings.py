# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the exporter: its own flags by name, as the environment that its service gets."""

from __future__ import annotations

import difflib
import re
from typing import Any, Dict, List, Mapping, Tuple

from .._plan import ERROR, Finding

_PREFIX = "DCGM_EXPORTER_"
BOOL, COUNT, TEXT, PATH, DEVICES = (
    "true or false",
    "a whole number",
    "a text",
    "an absolute path",
    "a choice of devices",
)
# Without blanks and what systemd or an engine of containers would read otherwise.
_PATH = re.compile(r"/[A-Za-z0-9._/+-]+\Z")
_DEVICES = re.compile(r"(f|[gi](:\d+(-\d+)?(,\d+(-\d+)?)*)?)\Z")

# Flag -> variable, what it may be. Those that the module's own options set, and those of Kubernetes, are left out.
# Source: the flags of dcgm-exporter 4.8.
FLAGS: Dict[str, Tuple[str, str]] = {
    "devices": (_PREFIX + "DEVICES_STR", DEVICES),
    "switch-devices": (_PREFIX + "OTHER_DEVICES_STR", DEVICES),
    "cpu-devices": (_PREFIX + "CPU_DEVICES_STR", DEVICES),
    "no-hostname": (_PREFIX + "NO_HOSTNAME", BOOL),
    "xid-count-window-size": (_PREFIX + "XID_COUNT_WINDOW_SIZE", COUNT),
    "clock-events-count-window-size": (_PREFIX + "CLOCK_EVENTS_COUNT_WINDOW_SIZE", COUNT),
    "replace-blanks-in-model-name": (_PREFIX + "REPLACE_BLANKS_IN_MODEL_NAME", BOOL),
    "enable-dcgm-log": (_PREFIX + "ENABLE_DCGM_LOG", BOOL),
    "dcgm-log-level": (_PREFIX + "DCGM_LOG_LEVEL", "one of NONE, FATAL, ERROR, WARN, INFO, DEBUG, VERB"),
    "log-format": (_PREFIX + "LOG_FORMAT", "one of text, json"),
    "hpc-job-mapping-dir": ("DCGM_HPC_JOB_MAPPING_DIR", PATH),
    "enable-gpu-bind-unbind-watch": (_PREFIX + "ENABLE_GPU_BIND_UNBIND_WATCH", BOOL),
    "gpu-bind-unbind-poll-interval": (_PREFIX + "GPU_BIND_UNBIND_POLL_INTERVAL", TEXT),
    "disable-startup-validate": ("DISABLE_STARTUP_VALIDATE", BOOL),
    "enable-pprof": (_PREFIX + "ENABLE_PPROF", BOOL),
    "debug": (_PREFIX + "DEBUG", BOOL),
    "dump-enabled": (_PREFIX + "DUMP_ENABLED", BOOL),
    "dump-directory": (_PREFIX + "DUMP_DIRECTORY", PATH),
    "dump-retention": (_PREFIX + "DUMP_RETENTION", COUNT),
    "dump-compression": (_PREFIX + "DUMP_COMPRESSION", BOOL),
}
BIND_WATCH = "enable-gpu-bind-unbind-watch"  # wants DCGM 4.5 or newer
# Flags that have an option of their own.
OPTIONS = {
    "collectors": "metrics",
    "address": "listen_address and port",
    "collect-interval": "collect_interval",
    "remote-hostengine-info": "hostengine_address",
    "web-config-file": "web_config",
}


def environment(given: Mapping[str, Any], dcgm: Tuple[int, ...]) -> Tuple[Dict[str, str], List[Finding]]:
    """Variables by name, and what is wrong."""
    made: Dict[str, str] = {}
    found: List[Finding] = []
    for flag, value in given.items():
        path = f"settings.{flag}"
        if flag not in FLAGS:
            found.append(_unknown(flag, path))
            continue
        variable, allowed = FLAGS[flag]
        text = _text(value, allowed)
        if text is None:
            found.append(Finding("settings", ERROR, f"{value!r}; allowed is {allowed}", path=path))
        else:
            made[variable] = text
        if flag == BIND_WATCH and text == "true" and () < dcgm < (4, 5):
            detail = f"wants DCGM 4.5 or newer, and this is {'.'.join(map(str, dcgm))}"
            found.append(Finding("settings", ERROR, detail, path=path))
    return made, found


def _unknown(flag: str, path: str) -> Finding:
    if flag in OPTIONS:
        return Finding("settings", ERROR, "has an option of its own", path=path, remedy=f"Use {OPTIONS[flag]}")
    like = difflib.get_close_matches(flag.replace("_", "-"), FLAGS, n=1)
    remedy = f"Did you mean {like[0]}?" if like else f"There are {', '.join(FLAGS)}"
    return Finding("settings", ERROR, "is no flag of the exporter on a host", path=path, remedy=remedy)


def _text(value: Any, allowed: str) -> Any:
    """The value as the exporter reads it; None where it is not what is allowed."""
    text = str(value).strip()
    lower = text.lower()
    if allowed == BOOL:
        return {"true": "true", "yes": "true", "false": "false", "no": "false"}.get(lower)
    if not text or not re.match(r"[^\x00-\x1f\x7f]+\Z", text):
        return None
    if allowed == COUNT:
        return text if re.match(r"\d{1,9}\Z", text) else None
    if allowed == PATH:
        return text if _PATH.match(text) else None
    if allowed == DEVICES:
        return text if _DEVICES.match(text) else None
    choices = [one for one in allowed.replace("one of ", "").split(", ") if one.lower() == lower]
    return choices[0] if choices and allowed.startswith("one of") else text if allowed == TEXT else None
