# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit that gives GPUs their layout at boot: its files, made and removed."""

from __future__ import annotations

import io
import sys
import zipfile
from typing import Any, Dict, List, Tuple

from .. import _plan
from .._host import _lock
from .._host._files import Files
from .._host._systemd import Units
from . import (
    _board,
    _boot,
    _execute,
    _geometry,
    _kept,
    _layout,
    _mig_parted,
    _names,
    _nvml,
    _picture,
    _planner,
    _resolve,
    _search,
    _state,
)
from ._override import NOTE
from ._services import STOPPED

PROGRAM = "/usr/local/lib/gpufleet/mig-restore.pyz"
STATE = "/var/lib/gpufleet/mig"
LAYOUT = f"{STATE}/layout.json"
BROKEN = f"{LAYOUT}.broken"
CHECKPOINT = f"{STATE}/checkpoint.json"
NAME = "gpufleet-mig-restore.service"
UNIT = f"/etc/systemd/system/{NAME}"
FOLDERS = ("/usr/local/lib/gpufleet", STATE, "/var/lib/gpufleet")

_PARTS = (
    _board,
    _boot,
    _execute,
    _geometry,
    _kept,
    _layout,
    _mig_parted,
    _names,
    _nvml,
    _picture,
    _planner,
    _resolve,
    _search,
    _state,
)
_MAIN = "import sys\n\nfrom gpufleet._gpu._boot import main\n\nsys.exit(main(sys.argv[1:]))\n"


def unit_text(python: str) -> str:
    """The unit: after the driver is up, before whatever looks at GPUs."""
    return f"""# Made by gpufleet.nvidia.mig_partition: gives GPUs their MIG layout at boot.
[Unit]
Description=MIG layout of GPUs
After=systemd-modules-load.service nvidia-persistenced.service nvidia-fabricmanager.service
Before=kubelet.service nvidia-dcgm.service dcgm-exporter.service nvidia-dcgm-exporter.service
Before=nvidia-cdi-refresh.service containerd.service docker.service crio.service
ConditionPathExists={LAYOUT}

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=480
ExecStart={python} {PROGRAM} {LAYOUT}

[Install]
WantedBy=multi-user.target
"""


def zipapp(pynvml: Any) -> bytes:
    """A program of this package and pynvml, for the Python that runs this; the same bytes for the same sources."""
    parts: Dict[str, str] = {
        "__main__.py": _MAIN,
        "gpufleet/__init__.py": "",
        "gpufleet/_plan.py": _source(_plan),
        "gpufleet/_gpu/__init__.py": "",
        "gpufleet/_host/__init__.py": "",
        "gpufleet/_host/_lock.py": _source(_lock),
    }
    for part in _PARTS:
        parts[f"gpufleet/_gpu/{part.__name__.rpartition('.')[2]}.py"] = _source(part)
    if not hasattr(pynvml, "__path__"):  # a package stays where it is installed
        parts["pynvml.py"] = _source(pynvml)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in sorted(parts):
            archive.writestr(zipfile.ZipInfo(name), parts[name].encode())
    return made.getvalue()


def _source(module: Any) -> str:
    """A module's text, also where Ansible has packed it."""
    text = module.__spec__.loader.get_source(module.__name__)
    if not isinstance(text, str):
        raise _plan.Failure(f"The source of the Python module {module.__name__} cannot be read on this host.")
    return text


def wanted(pynvml: Any, layout: str) -> List[Tuple[str, bytes]]:
    """Files and their contents."""
    return [
        (PROGRAM, zipapp(pynvml)),
        (LAYOUT, layout.encode()),
        (UNIT, unit_text(sys.executable).encode()),
    ]


def different(files: Files, contents: List[Tuple[str, bytes]]) -> List[str]:
    """Paths of those that are not as they shall be."""
    return [path for path, content in contents if files.read(path) != content]


def install(files: Files, units: Units, contents: List[Tuple[str, bytes]]) -> None:
    """Write what differs and have the unit started at boot."""
    for path, content in contents:
        make_folder(files, path)
        changed = files.write_bytes(path, content, 0o600 if path == LAYOUT else 0o644)
        if changed and path == UNIT:
            units.reload()
    units.enable(NAME)


def make_folder(files: Files, path: str) -> None:
    """The folder of a file of ours; what is below /var/lib is for root alone."""
    folder = path.rpartition("/")[0]
    files.make_folder(folder, 0o700 if folder.startswith("/var/lib/") else 0o755)


def there(files: Files) -> List[str]:
    """Paths of ours that exist."""
    return [path for path in (UNIT, PROGRAM, LAYOUT, BROKEN, CHECKPOINT, STOPPED, NOTE) if files.exists(path)]


def remove(files: Files, units: Units) -> None:
    """Take the unit and all its files away."""
    known = files.exists(UNIT)
    if known:
        units.stop(NAME)  # it has nothing to stop; systemd forgets it
        units.disable(NAME)
    for path in there(files):
        files.remove(path)
    for folder in FOLDERS:
        files.remove_folder(folder)
    if known:
        units.reload()
