# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates a fleet of GPU nodes on a running control plane, until SIGTERM.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.simulator --kubeconfig FILE --fleet default
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from pathlib import Path

from . import fleet
from .api import Client
from .context import ApiError
from .engine import Engine, say
from .faults import Faults

# A person who watches sees each stage come up, and a whole fleet is there within 20 to 40 seconds.
PRACTICE_SPEED = 14.0


def show_threads() -> None:
    """What each thread is doing, on stderr: for a person who finds that nothing moves."""
    for number, frame in sys._current_frames().items():
        say(f"thread {number}:\n{''.join(traceback.format_stack(frame))}")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulator", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="of the user whose name the simulator's own writes carry"
    )
    parser.add_argument("--fleet", required=True, help="name of a fleet in tests/testbed/fleets, or a file")
    parser.add_argument("--nodes", type=int, help="repeat the fleet's GPU groups until there are so many nodes")
    parser.add_argument(
        "--speed",
        type=float,
        default=PRACTICE_SPEED,
        help="times faster than life; inf: nothing waits (default %(default)g)",
    )
    parser.add_argument("--control", type=Path, help="YAML file with faults, read again when it changes")
    parser.add_argument("--hosts-file", type=Path, help="what is true on each host, written at SIGUSR2")
    parser.add_argument("--ready-file", type=Path, help="touched when all nodes exist")
    options = parser.parse_args(argv)
    if not options.speed > 0:
        parser.error("--speed must be more than 0")
    signal.signal(signal.SIGUSR1, lambda *_: show_threads())
    try:
        specs = fleet.load(options.fleet, options.nodes)
        faults = Faults(path=options.control)
        faults.reload()
        engine = Engine(Client(options.kubeconfig), specs, faults, options.speed)
        engine.hosts_file = options.hosts_file
        signal.signal(signal.SIGUSR2, lambda *_: engine.asked_hosts.set())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: engine.stop())
        engine.start()
    except (fleet.FleetError, ValueError, ApiError, OSError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 1
    say(f"{len(specs)} nodes of fleet {options.fleet} are there, {options.speed:g} times faster than life")
    if options.ready_file:
        options.ready_file.touch()
    engine.run()
    say(f"stopped after {engine.looks} looks at pods and {engine.writes} statuses written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
