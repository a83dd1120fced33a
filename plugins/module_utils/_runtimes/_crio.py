# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of CRI-O: files of ``crio.conf.d`` are read after ``crio.conf``, by name, and a runtime's table is
taken whole from the last file that has it. Everything that we need is in a drop-in of its own."""

from __future__ import annotations

import copy
import posixpath
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .._plan import ERROR, Finding
from ._toml import Toml, TomlError, dumps
from ._types import HEADER, Broken, Proposal, Reader, Wanted, at, demand, meant, table

CONFIG = "/etc/crio/crio.conf"
DROP_IN = "/etc/crio/crio.conf.d/99-nvidia.toml"  # nvidia-ctk's, so that there are never two


def load(reader: Reader, config: str, drop_in: str = DROP_IN) -> List[Tuple[str, Dict[str, Any]]]:
    """Files and their content in the order in which CRI-O reads them. Raises Broken."""
    documents = []
    for path in [config, *reader.glob(posixpath.join(posixpath.dirname(drop_in), "*"))]:
        text = reader.text(path)
        if text is None:
            continue
        try:
            data = Toml(text).data
        except TomlError as error:
            raise Broken(f"{path}: {error}. CRI-O cannot read it either; it is left alone. Mend it.") from None
        runtimes = ("crio", "runtime", "runtimes")
        demand(
            path, data, (runtimes[:1], dict), (runtimes[:2], dict), (runtimes, dict), ((*runtimes, "*"), dict),
            ((*runtimes[:2], "default_runtime"), str),
        )  # fmt: skip
        documents.append((path, data))
    return documents


def effective(documents: List[Tuple[str, Dict[str, Any]]]) -> Tuple[Dict[str, Any], str]:
    """Runtimes by name, and the default one ("" where no file says)."""
    runtimes: Dict[str, Any] = {}
    default = ""
    for _path, data in documents:
        runtime = table(at(data, "crio", "runtime"))
        runtimes.update(table(runtime.get("runtimes")))
        default = str(runtime.get("default_runtime") or default)
    return runtimes, default


def plan(
    reader: Reader, config: str, drop_in: str, wanted: Wanted, built_in: Mapping[str, Any], earlier: str = ""
) -> Proposal:
    """What gives CRI-O the runtime. ``built_in``: runtimes by its own ``crio status config``. Raises Broken."""
    documents = load(reader, config, drop_in)
    now, default_now = effective(documents)
    there = reader.text(drop_in)
    ours = (there or "").startswith(HEADER)
    others = [(path, data) for path, data in documents if path != drop_in or not ours]
    below, default = effective(others)
    source = _source(below, default, built_in, wanted.name)
    entry = dict(copy.deepcopy(source), **copy.deepcopy(table(below.get(wanted.name))))
    entry.update(runtime_path=wanted.program, runtime_type="oci")
    settings: Dict[str, Any] = {}
    if wanted.default is True:
        settings["default_runtime"] = wanted.name
    elif wanted.default is False and default == wanted.name:
        settings["default_runtime"] = earlier or next((name for name in ("crun", "runc") if name in below), "runc")
    elif wanted.default is None and default_now != default:
        settings["default_runtime"] = default_now if default_now in {*below, *built_in} else wanted.name
    proposal = Proposal(low_level=_low_level(source))
    if wanted.default is True and default_now != wanted.name:
        proposal.earlier = default_now
    if _is_right(now, default_now, entry, settings, wanted):
        return proposal
    content: Dict[str, Any] = {"crio": {"runtime": dict(settings, runtimes={wanted.name: entry})}}
    after = HEADER + "\n" + dumps(content)
    if there is not None and not ours:
        toml = Toml(there)
        toml.set(["crio"], content["crio"])
        after = toml.text()
    proposal.change(drop_in, there, after, "gives the runtime")
    later = [path for path, data in others if path > drop_in and _says(data, wanted, settings)]
    if later:
        proposal.findings.append(
            Finding(
                "runtime_overridden", ERROR, f"{later[0]} is read later and says otherwise of {wanted.name}",
                "crio", later[0], "Take it out of that file, or give a drop_in that sorts after it",
            )
        )  # fmt: skip
    return proposal


def _is_right(
    now: Mapping[str, Any], default_now: str, entry: Mapping[str, Any], settings: Mapping[str, Any], wanted: Wanted
) -> bool:
    return (
        meant(now.get(wanted.name)) == meant(entry)
        and settings.get("default_runtime", default_now) == default_now
        and not (wanted.default is False and default_now == wanted.name)
    )


def _source(runtimes: Mapping[str, Any], default: str, built_in: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """The runtime of which ours is a copy: the default one, runc, or crun; the first that is there."""
    for listed in (runtimes, built_in):
        for one in (default, "runc", "crun"):
            if one and one != name and not one.startswith("nvidia") and isinstance(listed.get(one), dict):
                found: Dict[str, Any] = table(listed[one])
                return found if listed is runtimes else (meant(found) or {})
    return {}


def _low_level(source: Mapping[str, Any]) -> List[str]:
    """CRI-O's own programs are not on the path, where the NVIDIA runtime looks for them."""
    path: Optional[Any] = source.get("runtime_path")
    return [path] if isinstance(path, str) and path.startswith("/") else []


def _says(data: Mapping[str, Any], wanted: Wanted, settings: Mapping[str, Any]) -> bool:
    runtime = table(at(data, "crio", "runtime"))
    return wanted.name in table(runtime.get("runtimes")) or (
        "default_runtime" in settings and "default_runtime" in runtime
    )
