# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host had before it was changed, kept so that it can be given back, after a kill too.

``/var/lib/gpufleet/<component>/`` (0700) holds ``journal.jsonl`` and, under ``backup/``, contents by their SHA-256.
Each change is written down before it is made, and marked done after it. Nothing is made there before the first change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from .._plan import Failure
from . import _lock
from ._files import Files

FOLDER = "/var/lib/gpufleet"
_COMPONENT = re.compile(r"[a-z][a-z0-9_]*\Z")
_ABSENT = ""  # the hash of a file that is not there


@dataclass(frozen=True)
class Kept:
    """A file that was not given back, since somebody else changed it after us. ``backup``: what it was before us."""

    path: str
    backup: str


@dataclass
class _Path:
    """What the journal says about one path: how it was found first, and every content that we gave it."""

    first: Dict[str, Any]
    ours: List[str]
    foreign: bool = False


class Journal:
    """The journal of one component; a context manager that keeps other runs of the component away (``Failure``)."""

    def __init__(self, files: Files, component: str, run: str = "", wait: float = 30.0) -> None:
        if not _COMPONENT.match(component):
            raise ValueError(f"{component!r} is no name of a component")
        self.folder = f"{FOLDER}/{component}"
        self.file = f"{self.folder}/journal.jsonl"
        self._files = files
        self._component = component
        self._run = run or f"{int(time.time())}-{os.getpid()}"
        self._wait = wait
        self._lock = -1
        self._lines: List[Dict[str, Any]] = []

    def __enter__(self) -> Journal:
        try:
            self._take_lock()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- Changes --------------------------------------------------------------------------------------------------

    def write(self, path: str, text: str, mode: Optional[int] = None) -> bool:
        """As ``Files.write``, and what was there can be given back. Returns whether anything was written."""
        content = text.encode("utf-8", "surrogateescape")
        before = self._files.read(path)
        if before == content and (mode is None or self._attributes(path)["mode"] == mode):
            return False
        step = self._intend(path, before, _hash(content))
        changed = self._files.write_bytes(path, content, mode)
        self._done(step)
        return changed

    def remove(self, path: str) -> bool:
        """Remove a plain file; what it was can be given back. Returns whether there was one."""
        if os.path.islink(self._files.root.entry(path)):
            raise Failure(f"{path} is a symbolic link; it is left alone. Remove it by hand if nothing needs it.")
        before = self._files.read(path)
        if before is None:
            return False
        step = self._intend(path, before, _ABSENT)
        self._files.remove(path)
        self._done(step)
        return True

    def make_folder(self, path: str, mode: int = 0o755) -> bool:
        """As ``Files.make_folder``; what was made is removed by ``give_back`` if it is empty then."""
        missing = path
        steps = []
        while not self._files.exists(missing):
            steps.append(missing)
            missing = os.path.dirname(missing)
        if not steps:
            return False
        step = self._append({"folders": steps[::-1], "done": False})
        self._files.make_folder(path, mode)
        self._done(step)
        return True

    def note(self, key: str, before: Any) -> None:
        """Write down something else that was so (a unit that was enabled, a mode). The first note of a key stays."""
        if key not in self.notes():
            self._append({"note": key, "before": before, "done": True})

    def notes(self) -> Dict[str, Any]:
        """What was noted and not forgotten, oldest first."""
        noted: Dict[str, Any] = {}
        for line in self._lines:
            if "note" in line:
                noted[line["note"]] = line["before"]
            noted.pop(line.get("forget", ""), None)
        return noted

    def forget(self, key: str) -> None:
        """A noted thing has been given back."""
        if key in self.notes():
            self._append({"forget": key, "done": True})

    # --- Giving back ----------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether anything of it is on the disk; after a kill that may be a folder with nothing in it."""
        if self._files.exists(self.folder):
            return True
        return self._files.exists(FOLDER) and not os.listdir(self._files.root.at(FOLDER))

    def paths(self) -> List[str]:
        """The files that were changed and not given back yet, in the order of their first change."""
        return list(self._paths())

    def original(self, path: str) -> Optional[str]:
        """What a changed file was before, as text; None where it was not there."""
        known = self._paths().get(path)
        backup = known.first["backup"] if known else ""
        return self._files.text(f"{self.folder}/backup/{backup}") if backup else None

    def would_keep(self) -> List[Kept]:
        """What ``give_back`` would leave alone; reads only."""
        return [self._kept(path, known) for path, known in self._paths().items() if not self._is_ours(path, known)]

    def give_back(self) -> List[Kept]:
        """Bring every file back to what it was, last one first; remove folders that were made, if empty.

        Files that somebody else has changed since are left alone and returned; the journal and its backups stay as long
        as there are any, or notes that are not forgotten. Otherwise nothing of the journal remains.
        """
        kept = []
        for path, known in reversed(list(self._paths().items())):
            if self._is_ours(path, known):
                self._restore(path, known.first)
                self._append({"given_back": path, "done": True})
            else:
                kept.append(self._kept(path, known))
        for folder in reversed([one for line in self._lines for one in line.get("folders", ())]):
            self._files.remove_folder(folder)
        if not kept and not self.notes():
            self._end()
        return kept[::-1]

    def settle(self, path: str) -> None:
        """What is ours in a file that somebody else changed too has been taken out by other means."""
        if path in self._paths():
            self._append({"given_back": path, "done": True})

    def _paths(self) -> Dict[str, _Path]:
        known: Dict[str, _Path] = {}
        for line in self._lines:
            if "given_back" in line:
                known.pop(line["given_back"], None)
            if "path" not in line:
                continue
            path, before = line["path"], line["sha256_before"]
            if path not in known:
                known[path] = _Path(line, [before])
            elif before not in known[path].ours:
                known[path].foreign = True
            known[path].ours.append(line["sha256_after"])
        return known

    def _is_ours(self, path: str, known: _Path) -> bool:
        now = _hash(self._files.read(path))
        return now == known.ours[0] or (now in known.ours and not known.foreign)

    def _kept(self, path: str, known: _Path) -> Kept:
        backup = known.first["backup"]
        return Kept(path, f"{self.folder}/backup/{backup}" if backup else "")

    def _restore(self, path: str, first: Dict[str, Any]) -> None:
        if not first["backup"]:
            self._files.remove(path)
            return
        content = self._files.read(f"{self.folder}/backup/{first['backup']}")
        if content is None or _hash(content) != first["sha256_before"]:
            raise Failure(
                f"{path} cannot be given back: its backup {self.folder}/backup/{first['backup']} is missing or "
                f"damaged. Write the file by hand, then remove {self.folder}."
            )
        self._files.write_bytes(path, content, first["mode"], (first["uid"], first["gid"]))

    def _end(self) -> None:
        if self._files.exists(f"{self.folder}/backup"):
            for name in sorted(os.listdir(self._files.root.at(f"{self.folder}/backup"))):
                self._files.remove(f"{self.folder}/backup/{name}")
        self._files.remove_folder(f"{self.folder}/backup")
        self._files.remove(self.file)
        self._lines = []
        self._files.remove_folder(self.folder)
        self._files.remove_folder(FOLDER)

    # --- The file -------------------------------------------------------------------------------------------------

    def _intend(self, path: str, before: Optional[bytes], after: str) -> int:
        line: Dict[str, Any] = {"path": path, "sha256_before": _hash(before), "sha256_after": after, "backup": ""}
        if before is not None:
            line.update(self._attributes(path))
            line["backup"] = line["sha256_before"]
            self._ready()
            self._files.make_folder(f"{self.folder}/backup", 0o700)
            self._files.write_bytes(f"{self.folder}/backup/{line['backup']}", before, 0o600)
        return self._append(dict(line, done=False))

    def _attributes(self, path: str) -> Dict[str, int]:
        found = os.stat(self._files.root.at(path))
        return {"mode": stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}

    def _done(self, step: int) -> None:
        self._append({"step": step, "done": True})

    def _append(self, line: Dict[str, Any]) -> int:
        self._ready()
        step = int(line.get("step", len(self._lines)))
        full = dict({"run": self._run, "step": step}, **line)
        self._files.append(self.file, json.dumps(full, sort_keys=True))
        self._lines.append(full)
        return step

    def _ready(self) -> None:
        """The folder is there, and this run holds its lock."""
        while self._lock < 0:
            self._files.make_folder(self.folder, 0o700)
            self._take_lock()
            if self._lines:
                raise Failure(f"Another run of {self._component} changes this host. Run again when it has ended.")

    def _take_lock(self) -> None:
        """Nothing is locked where the folder is not there."""
        self._lock = _lock.take(self._files.root.at(self.folder), self.folder, self._component, self._wait)
        if self._lock >= 0:
            self._load()

    def _load(self) -> None:
        content = self._files.text(self.file) or ""
        whole, newline, torn = content.rpartition("\n")
        if torn:  # the last run was killed while it wrote this line, so before the change that the line is about
            self._files.write(self.file, whole + newline)
        self._lines = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self._lines.append(_checked(json.loads(line)))
            except (ValueError, TypeError, KeyError):
                raise Failure(
                    f"{self.file} is damaged in line {number}, so what this host had before cannot be told. Look at "
                    f"{self.folder}/backup, then remove {self.folder}."
                ) from None


def _checked(line: Any) -> Dict[str, Any]:
    """A line of the journal, with the keys that its kind has."""
    if not isinstance(line, dict):
        raise TypeError
    if "path" in line:
        needed = ["sha256_before", "sha256_after", "backup"] + (["mode", "uid", "gid"] if line["backup"] else [])
        if [key for key in needed if key not in line] or "/" in line["backup"]:
            raise KeyError
    if "note" in line and "before" not in line:
        raise KeyError
    return line


def _hash(content: Optional[bytes]) -> str:
    return _ABSENT if content is None else hashlib.sha256(content).hexdigest()
