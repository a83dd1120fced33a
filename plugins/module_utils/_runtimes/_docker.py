# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of Docker's daemon. Everything else in ``daemon.json`` stays, byte by byte."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from .._plan import ERROR, Finding
from ._json import Json, JsonError
from ._types import Broken, Proposal, Reader, Version, Wanted, at, same_program, table

CONFIG = "/etc/docker/daemon.json"
_CDI_ON = (28, 3)  # CDI is on by itself from here on
_CDI_KNOWN = (25, 0)
#: Flags of the command line, and the key of the file that says the same; dockerd does not start when both are given.
_FLAGS = {"--add-runtime": "runtimes", "--default-runtime": "default-runtime", "--feature": "features"}


def plan(
    reader: Reader, path: str, wanted: Wanted, daemon: Version, flags: Sequence[str] = (), earlier: str = ""
) -> Proposal:
    """What gives Docker the runtime. ``flags``: how the daemon is started. Raises Broken.

    ``earlier``: the default runtime to go back to where ``wanted.default`` is false.
    """
    text = reader.text(path)
    document = _document(path, text)
    proposal = Proposal()
    now = document.data.get("default-runtime") or ""
    if wanted.default is True and now != wanted.name:
        document.set(["default-runtime"], wanted.name)
        proposal.earlier = str(now)
    elif wanted.default is False and now == wanted.name:
        # By name: a key that is gone counts as unchanged when Docker reloads.
        document.set(["default-runtime"], earlier or "runc")
    said = at(document.data, "runtimes", wanted.name, "path")
    by_flag = f"--add-runtime={wanted.name}={wanted.program}" in flags
    if not by_flag and not (isinstance(said, str) and same_program(said, wanted.program)):
        document.set(["runtimes", wanted.name, "path"], wanted.program)
    if wanted.cdi and _needs_cdi(document.data, daemon):
        document.set(["features", "cdi"], True)
    proposal.change(path, text, document.text() or text, "gives the runtime")
    if proposal.changes:
        proposal.findings = _conflicts(path, document.data, flags, daemon, wanted)
    return proposal


def _document(path: str, text: Any) -> Json:
    try:
        document = Json(text or "")
    except JsonError as error:
        raise Broken(f"{path}: {error}. dockerd cannot read it either; it is left alone. Mend it.") from None
    for key, kind in (("runtimes", dict), ("features", dict), ("default-runtime", str)):
        value = document.data.get(key)
        if value is not None and not isinstance(value, kind):
            shape = "an object" if kind is dict else "a text"
            raise Broken(f"{path}: {key} is {value!r}; allowed is {shape}. It is left alone. Mend it.")
    return document


def _needs_cdi(data: Dict[str, Any], daemon: Version) -> bool:
    said = table(data.get("features")).get("cdi")
    return said is not True and not (said is None and daemon is not None and daemon >= _CDI_ON)


def _conflicts(path: str, data: Dict[str, Any], flags: Sequence[str], daemon: Version, wanted: Wanted) -> List[Finding]:
    found = []
    given = {flag.split("=", 1)[0] for flag in flags}
    for flag, key in _FLAGS.items():
        if flag in given and key in data:
            found.append(
                Finding(
                    "docker_flag_conflict", ERROR, f"dockerd is started with {flag}, and {path} says {key} too: it "
                    f"does not start with both", "docker", path, f"Take {flag} out of docker.service, or "
                    f"leave docker out",
                )
            )  # fmt: skip
    if wanted.cdi and daemon is not None and daemon < _CDI_KNOWN:
        found.append(
            Finding(
                "docker_without_cdi", ERROR, f"Docker {daemon[0]}.{daemon[1]} knows no CDI", "docker", "cdi",
                "Use Docker 25 or newer, or leave cdi out",
            )
        )  # fmt: skip
    return found
