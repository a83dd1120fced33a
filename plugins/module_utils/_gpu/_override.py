# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own MIG manager as a host service keeps the label that it applies at boot in a file: it follows ours.

What the file said before is noted, so that ``state: absent`` gives it back.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Match, Optional

from .._host._files import Files
from .._plan import WARNING, Action, Check, Finding

FILE = "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf"
NOTE = "/var/lib/gpufleet/mig/manager-label.json"
VARIABLE = "MIG_PARTED_SELECTED_CONFIG"
_LINE = re.compile(rf'^[ \t]*Environment=[\'"]?{VARIABLE}=([^\'"\n]*)[\'"]?[ \t]*$', re.MULTILINE)
_SECTION = "[Service]\n"
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


@dataclass
class Override:
    """What the file needs. ``text``: its new content, None where it stays; ``note``: what to remember of the old."""

    text: Optional[str] = None
    note: str = ""
    actions: List[Action] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)

    def write(self, files: Files) -> bool:
        """Write it; read at the next boot, so nothing is reloaded. Returns whether there was anything to do."""
        if self.text is None:
            return False
        if self.note:
            files.make_folder(os.path.dirname(NOTE), 0o700)
            files.write(NOTE, self.note, 0o600)
        return files.write(FILE, self.text)

    def prove(self, files: Files) -> List[Check]:
        """What the manager would apply at boot, by its file."""
        if self.text is None:
            return []
        return [Check("mig-manager", files.text(FILE) == self.text, f"{FILE} names the label")]


def plan(files: Files, label: str) -> Override:
    """Nothing where the manager has no such file. ``label``: the layout's name; "" where it has none."""
    text = files.text(FILE)
    if text is None:
        return Override()
    found = _counting(text)
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
        after = text + ("\n" if text and not text.endswith("\n") else "") + _SECTION + f"{line}\n"
    kept = _noted(files)
    before = kept["line"] if kept.get("label") == now else found.group(0) if found else ""
    reason = "the MIG manager of the host applies this label at boot"
    note = json.dumps({"label": label, "line": before}, sort_keys=True)
    return Override(after, note, [Action("mig-manager", "update", FILE, reason, False, now or None, label)])


def plan_back(files: Files) -> Override:
    """What gives the line back that was there before the first of our runs; nothing where it is not ours any more."""
    text, kept = files.text(FILE) or "", _noted(files)
    found = _counting(text)
    if not found or kept.get("label") != found.group(1):
        return Override()
    start, end = found.span()
    before = _LINE.fullmatch(kept["line"])
    if not before:
        end += text.startswith("\n", end)
        if end == len(text) and text[:start].endswith(_SECTION):
            start -= len(_SECTION)
    after = text[:start] + kept["line"] + text[end:]
    was = before.group(1) if before else None
    return Override(after, "", [Action("mig-manager", "restore", FILE, "as it was found", False, kept["label"], was)])


def _counting(text: str) -> Optional[Match[str]]:
    """The last line that names a label: systemd takes no earlier one."""
    found = None
    for each in _LINE.finditer(text):
        found = each
    return found


def _noted(files: Files) -> Dict[str, str]:
    """``label`` that we wrote and ``line`` that was there before, "" for none; {} where nothing of that can be read."""
    try:
        found: Any = json.loads(files.text(NOTE) or "{}")
    except (ValueError, RecursionError):
        return {}
    fits = isinstance(found, dict) and isinstance(found.get("label"), str) and isinstance(found.get("line"), str)
    return found if fits and (not found["line"] or _LINE.fullmatch(found["line"])) else {}
