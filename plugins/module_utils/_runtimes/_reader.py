# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's files as planners read them."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from typing import List, Optional

from .._host._files import Files
from .._plan import Failure


class FilesReader:
    """Reads through ``Files``: below its root, plain files only."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def text(self, path: str) -> Optional[str]:
        """The content; None where there is no such file. Raises Failure for what is no plain file."""
        text = self._files.text(path)
        if text is None and self._files.exists(path):
            raise Failure(f"{path} is a link to nothing. It is left alone. Remove it, or make what it leads to.")
        return text

    def glob(self, pattern: str) -> List[str]:
        """Files that an absolute pattern matches, sorted; a star does not cross folders."""
        found = ["/"]
        for part in [one for one in pattern.split("/") if one]:
            found = [posixpath.join(folder, name) for folder in found for name in self._names(folder, part)]
        return sorted(path for path in found if os.path.isfile(self._files.root.at(path)))

    def _names(self, folder: str, pattern: str) -> List[str]:
        if not any(sign in pattern for sign in "*?["):
            return [pattern]
        try:
            names = os.listdir(self._files.root.at(folder))
        except OSError:
            return []
        return sorted(name for name in names if fnmatch.fnmatchcase(name, pattern))
