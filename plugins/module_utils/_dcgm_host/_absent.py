# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a metric that is asked for may not come: the hardware has no such thing, or MIG takes it away. Pure.

What is not explained here is missing for a reason that somebody has to find.
"""

from __future__ import annotations

from typing import Callable, Sequence, Tuple

from . import _fields
from ._counters import LABEL, Counter
from ._facts import Facts

_ROW_REMAPPING = ("ampere", "hopper", "ada", "blackwell", "rubin", "thor")
PROFILING = range(1001, 1100)
_LINKS = (
    *range(400, 500),
    *range(580, 593),
    *range(825, 844),
    *range(879, 898),
    *range(1200, 1221),
    *range(1404, 1420),
)
_UTILIZATION = (203, 204, 206, 207)
_NO_MIG = "GPUs with MIG on do not tell it; DCGM_FI_PROF_GR_ENGINE_ACTIVE tells how busy an instance is"

Rule = Tuple[Sequence[int], Callable[[Facts], bool], str]


def _all_mig(facts: Facts) -> bool:
    return bool(facts.gpus) and all(gpu.mig for gpu in facts.gpus)


def _none(names: Sequence[str]) -> Callable[[Facts], bool]:
    return lambda facts: not facts.architectures & set(names)


_RULES: Tuple[Rule, ...] = (
    (_UTILIZATION, _all_mig, _NO_MIG),
    (_LINKS, lambda facts: not any(gpu.nvlink for gpu in facts.gpus), "no GPU here has NVLink"),
    (
        (1011, 1012, *range(1040, 1076)),
        lambda facts: not any(gpu.nvlink for gpu in facts.gpus),
        "no GPU here has NVLink",
    ),
    (range(700, 825), lambda facts: not facts.switches, "the host has no NVSwitch"),
    (range(856, 879), lambda facts: not facts.switches, "the host has no NVSwitch"),
    ((*range(385, 390), *range(393, 397)), _none(_ROW_REMAPPING), "rows are remapped from Ampere on"),
    (
        (390, 391, 392),
        lambda facts: bool(facts.gpus) and facts.architectures <= set(_ROW_REMAPPING),
        "from Ampere on rows are remapped, and no pages retired",
    ),
    (range(1100, 1142), lambda facts: True, "only Grace CPUs are told"),
    (range(1300, 1400), lambda facts: True, "no ConnectX adapter is told"),
    ((*range(285, 288), *range(1400, 1404), *range(1076, 1080)), lambda facts: True, "only Grace systems have C2C"),
    ((*range(500, 535),), lambda facts: True, "the host has no vGPU"),
    ((1502, 1503), lambda facts: True, "IMEX is not set up"),
    ((170, 171, 172, 173, 174, 175), lambda facts: True, "the GPUs are in no NVLink fabric"),
    ((165, 166, 167, *range(1425, 1443)), lambda facts: True, "GPUs from Blackwell on tell it"),
    ((140, 151), lambda facts: True, "the GPU has no sensor at its memory"),
    ((191,), lambda facts: True, "the GPU has no fan of its own"),
    (range(300, 347), lambda facts: True, "the GPU has no ECC memory, or it is off"),
)

PROFILING_REASON = (
    "profiling metrics need a data-centre GPU from Volta on, the package datacenter-gpu-manager-4-proprietary for "
    "Ampere and older, and no Nsight or CUPTI at work beside (`dcgmi profile --pause` and `--resume`)"
)


def reason(counter: Counter, facts: Facts) -> str:
    """Why this metric does not come from this host; "" where nothing explains it."""
    if counter.kind == LABEL:
        return ""
    if counter.field in _fields.EVENTS:
        return "it comes with the first event"
    for numbers, holds, words in _RULES:
        if counter.number in numbers and holds(facts):
            return words
    return PROFILING_REASON if counter.number in PROFILING else ""


def per_instance(counter: Counter) -> bool:
    """Whether GPUs with MIG tell it for each instance."""
    return counter.kind != LABEL and (counter.number in (1001, 1002, 1003, 1004, 1005) or counter.number in (251, 252))
