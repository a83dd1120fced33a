# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of a host behind one interface: apt, dnf (4 and 5) and zypper, called as commands.

manager(runner, files).install({"nvidia-container-toolkit": "1.20.2-1"}, downgrade=False)
"""

from __future__ import annotations

from ..._plan import Failure
from .._commands import Runner
from .._files import Files
from ._apt import Apt
from ._dnf import Dnf
from ._dnf5 import Dnf5
from ._shared import Manager
from ._versions import compare
from ._zypper import Zypper

__all__ = ["MANAGERS", "Manager", "compare", "manager"]

#: In the order in which they are looked for: a Debian host may have dnf installed beside its own apt.
MANAGERS = {"apt": "/usr/bin/apt-get", "zypper": "/usr/bin/zypper", "dnf": "/usr/bin/dnf"}


def manager(runner: Runner, files: Files, name: str = "auto") -> Manager:
    """The package manager of a host; the first that is there with ``auto``.

    Raises ``Failure`` where there is none, and for an unknown name. dnf 5 is known by the link that dnf is then.
    """
    if name == "auto":
        name = next((one for one, program in MANAGERS.items() if files.exists(program)), "")
        if not name:
            raise Failure(
                "This host has none of apt, dnf and zypper, so packages cannot be installed on it. On an image-based "
                "system the toolkit comes with the image: leave its packages alone."
            )
    if name not in MANAGERS:
        raise Failure(f"{name!r} is no package manager that is known; there are auto, {', '.join(MANAGERS)}.")
    if name == "apt":
        return Apt(runner)
    if name == "zypper":
        return Zypper(runner)
    if files.root.at(MANAGERS["dnf"]).endswith("/dnf5"):
        return Dnf5(runner)
    return Dnf(runner)
