# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the shell text of a container: which files it waits for, which it sources, and which program it becomes.

Nothing is run: the text comes from a cluster. What is understood is what operands use: assignments of plain
values, loops on
``[ -f FILE ]``, ``.`` and ``source``, ``exec``, ``sleep`` and ``rm``.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass
from functools import lru_cache

_TEST = re.compile(r"(?:\[\[?|\btest)\s+(?:!\s+)?-[efs]\s+(\"[^\"]*\"|'[^']*'|[^\s\];]+)")
# ``$(cat FILE)`` or ``$(< FILE)``, compared with a word; and the same by way of a variable that was read from a file.
_CONTENT = r"\[\[?\s+\"?\$\((?:cat\s+|<\s*)\"?([^)\"]+?)\"?\)\"?\s+(==?|!=)\s+[\"']?([\w-]+)[\"']?\s*\]\]?"
_VARIABLE = r"\[\s+\"?\$\{?(\w+)\}?\"?\s+(==?|!=)\s+[\"']?([\w-]+)[\"']?\s*\]\s*(\|\||&&)\s*exit\s+0\b"
_STEP = re.compile(
    r"(?:^|[;&|\n])\s*(?P<loop>until|while)\b(?P<test>.*?)\bdo\b"
    rf"|\bif\s+{_CONTENT}\s*;?\s*then\b(?P<then>.*?)\bfi\b"
    rf"|{_VARIABLE}",
    re.S,
)
_READ = re.compile(r"\bread\s+(?:-r\s+)?(\w+)\s*<\s*(\"[^\"]*\"|[^\s;|&]+)")
_CHANGE_FOLDER = re.compile(r"(?:^|[;\n])\s*cd\s+(/[^\s;|&]*)")
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
class Step:
    """Waits until one of the files exists; or, with ``value``, ends the script where the file's text is (``equal``), or
    is not, that value."""

    paths: tuple[str, ...]
    value: str = ""
    equal: bool = True


@dataclass(frozen=True)
class Script:
    steps: tuple[Step, ...]
    sources: tuple[str, ...]
    command: tuple[str, ...]  # the last command: what stays
    forever: bool  # ends in a loop or sleep that never ends
    removes: tuple[str, ...]
    text: str

    @property
    def waits(self) -> tuple[str, ...]:
        return tuple(path for step in self.steps if not step.value for path in step.paths)

    def becomes(self, program: str) -> bool:
        return bool(self.command) and self.command[0].rsplit("/", 1)[-1] == program


def _plain(word: str, names: dict[str, str]) -> str:
    word = word.strip("\"'")
    return re.sub(r"\$\{?(\w+)\}?", lambda m: names.get(m.group(1), m.group(0)), word)


def _steps(found: re.Match[str], names: dict[str, str], files: dict[str, str], folder: str) -> list[Step]:
    """What a loop waits for, or a test ends the script at. ``files``: variable -> the file that it is read from."""
    if found["loop"]:
        paths = tuple(posixpath.join(folder, _plain(test.group(1), names)) for test in _TEST.finditer(found["test"]))
        # ``until a or b`` and ``while not a and not b`` end with the first of them, the others with all.
        if paths and ("||" if found["loop"] == "until" else "&&") in found["test"]:
            return [Step(paths)]
        return [Step((path,)) for path in paths]
    if found["then"] is not None:
        path, sign, value = found.group(3, 4, 5)
        return [Step((_plain(path, names),), value, sign != "!=")] if "exit 0" in found["then"] else []
    name, sign, value, joint = found.group(7, 8, 9, 10)
    return [Step((files[name],), value, (sign != "!=") is (joint == "&&"))] if name in files else []


@lru_cache(maxsize=512)
def read(text: str) -> Script:
    body = "\n".join("" if line.lstrip().startswith("#") else line for line in text.replace("\\\n", " ").splitlines())
    names = {m.group(1): m.group(2).strip("\"'") for m in _ASSIGN.finditer(body)}
    files = {m.group(1): _plain(m.group(2), names) for m in _READ.finditer(body)}
    folder = next((m.group(1) for m in _CHANGE_FOLDER.finditer(body)), "/")
    steps = [step for found in _STEP.finditer(body) for step in _steps(found, names, files, folder)]
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
        if words[0].rsplit("/", 1)[-1] == "rm":
            removes += [_plain(w, names) for w in words[1:] if not w.startswith("-")]
            continue
        if not fixed:
            command = tuple(_plain(w, names) for w in words)
            fixed = becomes
    return Script(tuple(steps), tuple(sources), command, forever, tuple(removes), text)


def of_argv(argv: list[str]) -> Script | None:
    """The shell text of ``sh -c TEXT`` (kept in one word), else None."""
    if len(argv) >= 3 and argv[0].rsplit("/", 1)[-1] in ("sh", "bash") and argv[1].startswith("-") and "c" in argv[1]:
        return read(argv[2])
    return None
