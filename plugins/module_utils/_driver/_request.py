# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user asks for, and what is wrong with the question itself. Pure, apart from one look at the root folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Tuple

from .._host import _accept
from .._plan import ERROR, Finding
from . import _beside, _imex, _parameters, _rules
from ._beside import Part
from ._rules import Rule
from ._types import COMPANIONS

AUTO = "auto"
LATEST = "latest"
NOW = "now"
NEXT_BOOT = "next_boot"

_VERSION = re.compile(r"(\d{3})\.\d+(\.\d+)?\Z")
_KERNEL = re.compile(r"\d+\.\d+[A-Za-z0-9.+~_-]*\Z")


@dataclass(frozen=True)
class Request:
    """The module's options. ``branch`` 0: the one that is there, else what suits the GPUs; ``version`` "": what is
    installed of that branch, else its newest; ``kernel`` "": the one that runs; ``beside``: what is judged with the
    driver, None where it is judged alone."""

    absent: bool = False
    branch: int = 0
    version: str = ""
    flavour: str = AUTO
    source: str = AUTO
    repository: Mapping[str, Any] = field(default_factory=dict)
    use: str = "compute"
    companions: Tuple[str, ...] = (AUTO,)
    kernel: str = ""
    accept: Tuple[str, ...] = ()
    apply: str = NOW
    parameters: Mapping[str, Any] = field(default_factory=dict)
    hold: bool = True
    matrix: Mapping[str, Any] = field(default_factory=dict)
    mok_password: str = ""
    imex_nodes: Tuple[str, ...] = ()
    rules: Tuple[Rule, ...] = ()
    beside: Optional[Mapping[str, Part]] = None
    root: str = "/"

    @property
    def exact(self) -> str:
        """The full version that is asked for; "" where a branch is."""
        return "" if self.version == LATEST else self.version


def read(params: Mapping[str, Any]) -> Tuple[Request, List[Finding]]:
    """The request, and every problem that it has by itself."""
    version = str(params["version"] or "")
    rules, wrong = _rules.read(params.get("version_rules") or ())
    beside, more = _beside.read(params.get("beside"))
    request = Request(
        absent=params["state"] == "absent",
        branch=int(params["branch"] or 0),
        version=version,
        flavour=str(params["flavour"]),
        source=str(params["source"]),
        repository={key: value for key, value in (params["repository"] or {}).items() if value is not None},
        use=str(params["use"]),
        companions=tuple(params["companions"]),
        kernel=str(params["kernel"] or ""),
        accept=tuple(params["accept"] or ()),
        apply=str(params["apply"]),
        parameters=dict(params["parameters"] or {}),
        hold=bool(params["hold"]),
        matrix=dict(params["matrix"] or {}),
        mok_password=str(params["mok_password"] or ""),
        imex_nodes=tuple(params.get("imex_nodes") or ()),
        rules=rules,
        beside=beside,
        root=str(params["root"]),
    )
    wrong += _imex.judge(request.imex_nodes)
    wrong += [*_parameters.judge(request.parameters, "parameters"), *more]
    words = _accept.unknown("nvidia_driver", request.accept)
    # What is wrong with a driver that is to come does not keep the one that is there from going.
    return request, [*_versions(request), *_others(request), *words, *([] if request.absent else wrong)]


def _versions(request: Request) -> List[Finding]:
    if request.version in ("", LATEST):
        return []
    found = _VERSION.match(request.version)
    if not found:
        detail = f"{request.version!r} is no version of the driver; allowed are versions like 580.95.05, and latest"
        return [Finding("no_version", ERROR, detail, path="version")]
    if request.branch and int(found.group(1)) != request.branch:
        detail = f"{request.version} is of branch {found.group(1)}, and branch {request.branch} is asked for"
        return [Finding("version_of_other_branch", ERROR, detail, path="version", remedy="Leave one of the two out")]
    return []


def _others(request: Request) -> List[Finding]:
    found = []
    if request.branch and not 300 <= request.branch <= 999:
        detail = f"{request.branch} is no branch of the driver; allowed are numbers like 580"
        found.append(Finding("no_branch", ERROR, detail, path="branch"))
    for number, name in enumerate(request.companions):
        if name not in (AUTO, *COMPANIONS):
            detail = f"{name!r} is no companion of the driver; allowed are auto, {', '.join(COMPANIONS)}"
            found.append(Finding("no_companion", ERROR, detail, path=f"companions[{number}]"))
    if request.kernel and not _KERNEL.match(request.kernel):
        detail = f"{request.kernel!r} is no release of a kernel; allowed are those like 6.8.0-45-generic"
        found.append(Finding("no_kernel", ERROR, detail, path="kernel"))
    if not os.path.isabs(request.root) or not os.path.isdir(request.root):
        detail = f"{request.root!r} is no folder; allowed is an absolute path of one"
        found.append(Finding("no_root", ERROR, detail, path="root"))
    return found
