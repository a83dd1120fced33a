# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node by hand, and for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.node up|down [NAME]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.cluster import ClusterError
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import HostError
from ansible_collections.gpufleet.nvidia.tests.testbed.node import Node
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import ProgramError, say


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="node", description="A real Kubernetes node on a test host.")
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("name", nargs="?", default="node-1", help="the node's and the host's (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/node"), help="keys, inventory (%(default)s)")
    options = parser.parse_intermixed_args(arguments)
    try:
        node = Node(options.folder, options.name, lasting=True).find()
        if options.command == "down":
            node.down()
            shutil.rmtree(node.folder, ignore_errors=True)
            return 0
        began = time.monotonic()
        node.up()
    except (ClusterError, HostError, ProgramError) as error:
        print(error, file=sys.stderr)
        return 1
    say(f"{node.name}: Ready after {time.monotonic() - began:.0f} s")
    say(f"{node.cluster.kubectl} --kubeconfig {node.cluster.kubeconfig()} get pods")
    say(f"ansible-inventory -i {node.hosts.inventory()} --graph")
    return 0


if __name__ == "__main__":
    sys.exit(main())
