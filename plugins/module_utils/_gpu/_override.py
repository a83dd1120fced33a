# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own MIG manager as a host service keeps the label that it applies at boot in a file: it follows ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import List

from .._host._files import Files
from .._plan import WARNING, Action, Check, Finding

FILE = "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf"
VARIABLE = "MIG_PARTED_SELECTED_CONFIG"
_LINE = re.compile(rf'^[ \t]*Environment=[\'"]?{VARIABLE}=([^\'"\n]*)[\'"]?[ \t]*$', re.MULTILINE)
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


@dataclass
class Override:
    """What the file needs. ``text``: its new content, "" where it stays."""

    text: str = ""
    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)

    def write(self, files: Files) -> bool:
        """Write it; read at the next boot, so nothing is reloaded. Returns whether there was anything to do."""
        return bool(self.text) and files.write(FILE, self.text)

    def prove(self, files: Files) -> List[Check]:
        """What the manager would apply at boot, by its file."""
        return [Check("mig-manager", files.text(FILE) == self.text, f"{FILE} names the label")] if self.text else []


def plan(files: Files, label: str) -> Override:
    """Nothing where the manager has no such file. ``label``: the layout's name; "" where it has none."""
    text = files.text(FILE)
    if text is None:
        return Override()
    found = _LINE.search(text)
    now = found.group(1) if found else ""
    if not _LABEL.match(label):
        if not now:
            return Override()
        detail = f"nvidia-mig-manager.service gives the host the layout {now} at boot, and not the one of this run"
        remedy = "Give the layout by name, or switch that service off."
        return Override(findings=[Finding("mig.manager-label", WARNING, detail, FILE, remedy=remedy)])
    if now == label:
        return Override()
    line = f'Environment="{VARIABLE}={label}"'
    if found:
        after = text[: found.start()] + line + text[found.end() :]
    else:
        after = text + ("\n" if text and not text.endswith("\n") else "") + f"[Service]\n{line}\n"
    reason = "the MIG manager of the host applies this label at boot"
    return Override(after, [Action("mig-manager", "update", FILE, reason, False, now or None, label)])
