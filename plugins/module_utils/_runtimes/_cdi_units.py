# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who makes CDI specifications anew between runs, and where they are written: one place and one unit name.

The toolkit brings ``nvidia-cdi-refresh.service`` and ``.path`` since release 1.18. Before that, units of ours have the
same names, so that whoever restarts the service after a MIG change (mig_partition does) needs to know one name only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence

from .._gpu._services import CDI as SERVICE
from .._host._files import Files

PATH_UNIT = "nvidia-cdi-refresh.path"
MARK = "# Made by gpufleet.nvidia.container_toolkit"
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
BY_SERVICE = "/var/run/cdi/nvidia.yaml"
PERSISTENT = "/etc/cdi/nvidia.yaml"
_OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
_RETRIES_SINCE = 244  # the first systemd that takes Restart= in units of type oneshot


@dataclass(frozen=True)
class Refresh:
    """``unit``: file of the service, "" without one; ``ours``: it is one of ours; ``masked``: somebody wants none.

    ``output``: where the toolkit's own service writes; ``environment``: what it gives to nvidia-ctk.
    """

    unit: str = ""
    ours: bool = False
    masked: bool = False
    output: str = ""
    environment: Dict[str, str] = field(default_factory=dict)


def refresh_of(files: Files) -> Refresh:
    """What refreshes specifications on this host, by its unit files. The toolkit's service counts before ours."""
    ours = ""
    for folder in UNIT_FOLDERS:
        unit = f"{folder}/{SERVICE}"
        if not files.exists(unit):
            continue
        if _masked(files, unit):
            return Refresh(unit, masked=True)
        if not (files.text(unit) or "").startswith(MARK):
            given = _environment(files.text(ENVIRONMENT) or "")
            output = given.pop(_OUTPUT, "") or BY_SERVICE
            if output.startswith("/run/"):
                output = f"/var{output}"
            return Refresh(unit, output=output, environment=given)
        ours = unit
    return Refresh(ours, ours=bool(ours))


def _masked(files: Files, unit: str) -> bool:
    return files.root.at(unit) == files.root.at("/dev/null")


def _environment(text: str) -> Dict[str, str]:
    """Variables of nvidia-ctk in a file of systemd's form."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and name.startswith("NVIDIA_"):
            found[name] = value.strip().strip("\"'")
    return found


def unit_files(argv: Sequence[str], output: str, systemd: int = 0) -> Dict[str, str]:
    """Both units, by path. ``argv`` makes a specification and ends before ``--output``; ``systemd`` is its version.

    The new file replaces the old one only when the driver answers and at least one device is named; without a driver
    the service fails, and with systemd 244 or newer tries again. Enable and start the path unit, enable the service.
    """
    new = "/run/gpufleet-cdi/nvidia" + output[output.rindex(".") :]
    folder, _slash, name = output.rpartition("/")
    beside = f"{folder}/.{name}.new"
    again = "Restart=on-failure\nRestartSec=10s\n" if systemd >= _RETRIES_SINCE else ""
    service = f"""{MARK}: makes CDI specifications anew.
[Unit]
Description=CDI specifications of NVIDIA GPUs
After=systemd-modules-load.service nvidia-persistenced.service nvidia-fabricmanager.service
ConditionPathExists={argv[0]}
ConditionPathExists=/usr/bin/nvidia-smi
StartLimitIntervalSec=300
StartLimitBurst=20

[Service]
Type=oneshot
{again}TimeoutStartSec=90
RuntimeDirectory=gpufleet-cdi
RuntimeDirectoryMode=0700
ExecStart=/usr/bin/nvidia-smi -L
ExecStart={_line([*argv, "--output=" + new])}
ExecStart=/bin/grep -q -E "name[^A-Za-z0-9]+[A-Za-z0-9]" {new}
ExecStart=/bin/mkdir -p -m 0755 {folder}
ExecStart=/bin/cp {new} {beside}
ExecStart=/bin/chmod 0644 {beside}
ExecStart=/bin/mv -T -f {beside} {output}

[Install]
WantedBy=multi-user.target
"""
    path = f"""{MARK}: watches for changes of the driver and the toolkit.
[Unit]
Description=Changes of the NVIDIA driver and container toolkit

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/usr/bin/nvidia-smi
PathChanged={argv[0]}
Unit={SERVICE}

[Install]
WantedBy=multi-user.target
"""
    return {f"/etc/systemd/system/{SERVICE}": service, f"/etc/systemd/system/{PATH_UNIT}": path}


def _line(argv: Sequence[str]) -> str:
    """A command as systemd splits it: percent, dollar and blanks mean themselves."""
    return " ".join(_word(one) for one in argv)


def _word(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if any(letter in text for letter in " \t'\"\\;") or not text else text


def unit_changes(files: Files, argv: Sequence[str], output: str, systemd: int = 0) -> Dict[str, Optional[str]]:
    """Unit files to write (new text) or remove (None); only what differs.

    Ours are written where the toolkit brings none, and go where it does. After a change: ``systemctl daemon-reload``,
    and for written ones enable both and start the path unit.
    """
    refresh = refresh_of(files)
    if refresh.masked:
        return {}
    if refresh.unit and not refresh.ours:
        return dict.fromkeys(our_units(files))
    return {path: text for path, text in unit_files(argv, output, systemd).items() if files.text(path) != text}


def our_units(files: Files) -> List[str]:
    """Unit files that we made: they go when the toolkit brings its own, or is taken away."""
    paths = [f"/etc/systemd/system/{name}" for name in (SERVICE, PATH_UNIT)]
    return [path for path in paths if not _masked(files, path) and (files.text(path) or "").startswith(MARK)]
