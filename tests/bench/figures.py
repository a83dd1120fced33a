# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures: what was measured of ours and of a peer, judged by a goal, kept in build/bench.json, shown as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]

AT_LEAST = "ratio at least"
AT_MOST = "value at most"
BEGIN = "<!-- figures: written by `make bench BENCH=--write-docs` -->"
END = "<!-- end of figures -->"


class FigureError(Exception):
    """The kept figures, or the page that shows them, cannot be used; the message says which and why."""


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def keys(self, prefix: str = "") -> Row:
        """Number, least and greatest, as keys of a row."""
        least, greatest = min(self.values), max(self.values)
        return {f"{prefix}n": len(self.values), f"{prefix}min": _round(least), f"{prefix}max": _round(greatest)}


@dataclass(frozen=True)
class Goal:
    """``bound`` for the ratio (``AT_LEAST``) or for our own value (``AT_MOST``)."""

    rule: str
    bound: float

    def reached(self, value: float, ratio: float | None) -> bool:
        if self.rule == AT_MOST:
            return value <= self.bound
        return ratio is not None and ratio >= self.bound


def ratio_of(value: float, peer_value: float | None) -> float | None:
    """How many times more the peer takes; None where there is no peer or ours is 0."""
    return peer_value / value if peer_value is not None and value > 0 else None


def row(
    name: str,
    unit: str,
    ours: Sample,
    peer: str = "",
    theirs: Sample | None = None,
    goal: Goal | None = None,
    **more: Any,
) -> Row:
    """One figure. Judged before rounding; ``more`` are further keys."""
    peer_value = theirs.median if theirs else None
    ratio = ratio_of(ours.median, peer_value)
    return {
        "name": name,
        "value": _round(ours.median),
        "unit": unit,
        "peer": peer,
        "peer_value": _round(peer_value),
        "ratio": _round(ratio),
        "goal": goal.bound if goal else None,
        "ok": goal.reached(ours.median, ratio) if goal else True,
        "judged": goal.rule if goal else "",
        **ours.keys(),
        **(theirs.keys("peer_") if theirs else {}),
        **more,
    }


def _round(value: float | None) -> float | int | None:
    if value is None:
        return None
    kept = round(value, 3)
    return int(kept) if kept == int(kept) else kept


# --- build/bench.json -------------------------------------------------------------------------------------------------


def load(file: Path) -> list[Row]:
    """The kept figures; none where there is no file. Raises FigureError."""
    if not file.exists():
        return []
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FigureError(f"{file} is not JSON ({error}): remove it and measure again") from None
    if not isinstance(rows, list) or not all(isinstance(r, dict) and isinstance(r.get("name"), str) for r in rows):
        raise FigureError(f"{file} is not a list of figures with names: remove it and measure again")
    return rows


def merge(kept: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Kept figures with new ones in place of those of the same name, by name."""
    by_name = {r["name"]: r for r in kept} | {r["name"]: r for r in new}
    return [by_name[name] for name in sorted(by_name)]


def save(file: Path, rows: Sequence[Row]) -> None:
    """One figure a line. The file is replaced in one step, so that who reads it sees all of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text("[\n" + ",\n".join(f" {json.dumps(r)}" for r in rows) + "\n]\n", encoding="utf-8")
    fresh.replace(file)


# --- tables -----------------------------------------------------------------------------------------------------------

HEAD = ("", "figure", "ours", "peer's", "ratio", "goal", "peer")


def cells(r: Row) -> tuple[str, ...]:
    return (
        verdict(r),
        r["name"],
        _amount(r["value"], r["unit"]),
        _amount(r["peer_value"], r["unit"]),
        f"{r['ratio']:.1f}x" if r["ratio"] is not None else "",
        goal_text(r),
        r["peer"],
    )


def verdict(r: Row) -> str:
    return ("ok" if r["ok"] else "MISSED") if r["goal"] is not None else ""


def goal_text(r: Row) -> str:
    if r["goal"] is None:
        return ""
    return f"<= {r['goal']:g} {r['unit']}" if r["judged"] == AT_MOST else f">= {r['goal']:g}x"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "s":
        return f"{value:.2f} s"
    if unit == "ms":
        return f"{value:.2f} ms"
    return f"{value:.1f} MB" if unit.startswith("MB") else f"{value:g}"


def table(rows: Sequence[Row]) -> str:
    """The figures for a terminal."""
    lines = [HEAD, *(cells(r) for r in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    right = {2, 3, 4}
    return "\n".join(
        "  ".join(
            text.rjust(width) if n in right else text.ljust(width)
            for n, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def markdown(rows: Sequence[Row]) -> str:
    """The figures for a page: times first, then counts, then sizes."""
    parts = []
    times, counts, taken_down = ("s", "ms"), ("requests", "writes"), ("instances", "GPUs")
    for title, chosen in (
        ("Times", [r for r in rows if r["unit"] in times]),
        ("Requests and writes at the API server", [r for r in rows if r["unit"] in counts]),
        ("Taken down by changes of MIG layouts", [r for r in rows if r["unit"] in taken_down]),
        ("Memory and bytes", [r for r in rows if r["unit"] not in (*times, *counts, *taken_down)]),
    ):
        if chosen:
            parts += [f"### {title}", "", *_markdown_table(chosen), ""]
    stated = dict.fromkeys(f"Taken on {r['taken']} on {r['machine']}{_with(r)}." for r in rows if "machine" in r)
    return "\n".join([*parts, *stated]).strip() + "\n"


def _with(r: Row) -> str:
    return f", with {r['with']}" if r.get("with") else ""


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    head = ("figure", "ours", "ours, least to greatest", "peer", "peer's", "ratio", "goal")
    lines = [head, tuple("---" for _unused in head)]
    for r in rows:
        spread = f"{_amount(r['min'], r['unit'])} to {_amount(r['max'], r['unit'])}" if r["min"] != r["max"] else ""
        judged = f"{goal_text(r)} {verdict(r)}".strip()
        _unused, name, value, peer_value, ratio, _unused2, peer = cells(r)
        lines.append((f"`{name}`", value, spread, peer, peer_value, ratio, judged))
    return ["| " + " | ".join(line) + " |" for line in lines]


def write_into(page: Path, rows: Sequence[Row]) -> None:
    """Replace what stands between the two marks of the page. Raises FigureError where it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _unused, end, after = rest.partition(END)
    if not begin or not end:
        raise FigureError(f"{page} lacks the marks {BEGIN!r} and {END!r}, between which the figures stand")
    page.write_text(f"{before}{BEGIN}\n\n{markdown(rows)}\n{END}{after}", encoding="utf-8")
