# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures, merges the figures into build/bench.json, shows them, and exits 1 when a goal is missed.

A new bench is a file here with NAMES and ``run(names, repeats, report)``, and its line in BENCHES.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.gpufleet.nvidia.tests.bench import figures, host, machine, mig, scale, stack
from ansible_collections.gpufleet.nvidia.tests.bench.peers import PeerError
from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT
from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import ClusterError
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import HostError
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError, Report, say

FILE = CHECKOUT / "build" / "bench.json"
PAGE = CHECKOUT / "docs" / "bench.md"


@dataclass(frozen=True)
class Bench:
    names: tuple[str, ...]
    run: Callable[[set[str], int, Report], list[figures.Row]]


BENCHES = (
    Bench(mig.NAMES, mig.run),
    Bench(host.NAMES, host.run),
    Bench(stack.NAMES, stack.run),
    *(Bench(names, scale.run) for names in scale.NAMES_OF.values()),
)
EXPECTED = (
    HostError,
    host.BenchError,
    mig.BenchError,
    stack.BenchError,
    PeerError,
    ClusterError,
    ProgramError,
    figures.FigureError,
)


def chosen(asked: Sequence[str], names: Sequence[str]) -> set[str]:
    """Figures that are asked for by name, or by the words that their names begin with (``stack.noop``)."""
    if not asked:
        return set(names)
    return {name for name in names for part in asked if name == part or name.startswith(f"{part}.")}


def main(arguments: Sequence[str] | None = None) -> int:
    known = [name for bench in BENCHES for name in bench.names]
    parser = argparse.ArgumentParser(prog="bench", description="Measurements beside other tools.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a figure, or the beginning of several: stack.noop")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured; 3, and fewer only to try")
    parser.add_argument("--list", action="store_true", help="show the names of all figures")
    parser.add_argument("--write-docs", action="store_true", help="only write the kept figures into docs/bench.md")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(known))
        return 0
    missing = [part for part in options.names if not chosen([part], known)]
    if missing:
        parser.error(f"there is no figure {', '.join(missing)}; there are {', '.join(known)}")
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    try:
        if options.write_docs:
            figures.write_into(PAGE, figures.load(FILE))
            return 0
        return measure(chosen(options.names, known), options.repeats)
    except EXPECTED as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def measure(names: set[str], repeats: int) -> int:
    began, load = time.monotonic(), machine.load()
    kept = figures.load(FILE)
    say(f"bench: {len(names)} figures; others load the machine with {load:.1f} processes")
    new: list[figures.Row] = []
    for bench in BENCHES:
        wanted = names & set(bench.names)
        if wanted:
            new += bench.run(wanted, repeats, say)
            figures.save(FILE, figures.merge(kept, new))
    print(f"\n{figures.table(figures.merge([], new))}")
    missed = [r["name"] for r in new if not r["ok"]]
    minutes = (time.monotonic() - began) / 60
    say(f"\nbench: {len(new)} figures in {minutes:.1f} min; kept in {FILE.relative_to(CHECKOUT)}")
    if missed:
        say(f"bench: goals missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
