# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the shell text of a container: which files it waits for, which it sources, and which program it becomes.

Nothing is run: the text comes from a cluster. What is understood is what operands use: assignments of plain
values, loops on
``[ -f FILE ]``, ``.`` and ``source``, ``exec``, ``sleep`` and ``rm``.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import lru_cache

_TEST = re.compile(r"(?:\[\[?|\btest)\s+(?:!\s+)?-[efs]\s+(\"[^\"]*\"|'[^']*'|[^\s\];]+)")
_LOOP = re.compile(r"\b(?:until|while)\b(.*?)\bdo\b", re.S)
_SOURCE = re.compile(r"(?:^|[;&|\n])\s*(?:\.|source)\s+(\"[^\"]*\"|'[^']*'|[^\s;&|]+)")
_ASSIGN = re.compile(r"(?:^|[;\n])\s*(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"$`]*\"|'[^']*'|[\w./:-]*)(?=\s|;|$)")
_BUILTINS = {
    "trap", "wait", "exit", "return", "read", "case", "esac", "shift", "unset", "umask", "cd", "printf",
    "mv", "mkdir", "chmod",
}  # fmt: skip
_KEYWORDS = _BUILTINS | {
    "do",
    "done",
    "then",
    "fi",
    "else",
    "esac",
    "until",
    "while",
    "if",
    "for",
    "set",
    "echo",
    "export",
    "cat",
    ":",
    "true",
}


@dataclass(frozen=True)
class Script:
    waits: tuple[str, ...]
    sources: tuple[str, ...]
    command: tuple[str, ...]  # the last command: what stays
    forever: bool  # ends in a loop or sleep that never ends
    removes: tuple[str, ...]
    text: str

    def becomes(self, program: str) -> bool:
        return bool(self.command) and self.command[0].rsplit("/", 1)[-1] == program


def _plain(word: str, names: dict[str, str]) -> str:
    word = word.strip("\"'")
    return re.sub(r"\$\{?(\w+)\}?", lambda m: names.get(m.group(1), m.group(0)), word)


@lru_cache(maxsize=512)
def read(text: str) -> Script:
    body = "\n".join("" if line.lstrip().startswith("#") else line for line in text.replace("\\\n", " ").splitlines())
    names = {m.group(1): m.group(2).strip("\"'") for m in _ASSIGN.finditer(body)}
    waits: list[str] = []
    for loop in _LOOP.finditer(body):
        waits += [_plain(t.group(1), names) for t in _TEST.finditer(loop.group(1))]
    sources = [_plain(m.group(1), names) for m in _SOURCE.finditer(body)]
    removes: list[str] = []
    command: tuple[str, ...] = ()
    forever = bool(re.search(r"\bwhile\s+(?:true|:|\[\s*1\s*\]|sleep\b)|\bsleep\s+(?:inf|infinity)\b", body))
    fixed = False  # after ``exec`` nothing follows
    for line in re.split(r"[\n;]|&&|\|\|", body):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        becomes = False
        while words and (words[0] in ("exec", "do", "then", "else", "{") or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0])):
            becomes = becomes or words[0] == "exec"
            words.pop(0)
        if not words or words[0] in _KEYWORDS or words[0] in (".", "source", "sleep", "[", "[[", "test", "}"):
            continue
        if words[0] == "rm":
            removes += [_plain(w, names) for w in words[1:] if not w.startswith("-")]
            continue
        if not fixed:
            command = tuple(_plain(w, names) for w in words)
            fixed = becomes
    return Script(tuple(waits), tuple(sources), command, forever, tuple(removes), text)


def of_argv(argv: list[str]) -> Script | None:
    """The shell text of ``sh -c TEXT`` (kept in one word), else None."""
    if len(argv) >= 3 and argv[0].rsplit("/", 1)[-1] in ("sh", "bash") and argv[1].startswith("-") and "c" in argv[1]:
        return read(argv[2])
    return None
