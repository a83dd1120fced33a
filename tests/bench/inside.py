# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module cluster_policy does, once, in a plain Python process: prints its seconds, imports left out.

python -m ansible_collections.gpufleet.nvidia.tests.bench.inside KUBECONFIG [PARAMETERS as JSON]
"""

from __future__ import annotations

import json
import sys
import time

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._stack import cluster_policy


def main(kubeconfig: str, more: str = "{}") -> None:
    params = {"kubeconfig": kubeconfig, "state": "present", "namespace": "gpu-operator", "policy": {}, "wait": False}
    params |= json.loads(more)
    Connection.open(params)  # imports the package `kubernetes`, which happens once; nothing is sent
    began = time.perf_counter()
    result = cluster_policy(params, False, lambda line: None)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "changed": result.as_dict()["changed"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
