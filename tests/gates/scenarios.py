# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs molecule's scenarios, one for each role, all or those named. Exit status 0 only if all passed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT

MOLECULE = CHECKOUT / "molecule"
TOOLS = Path(sys.executable).parent


def scenarios() -> list[str]:
    return sorted(path.parent.name for path in MOLECULE.glob("*/molecule.yml"))


def run(name: str) -> bool:
    """One scenario from create to destroy; what it says is shown only when it fails."""
    start = time.monotonic()
    print(f"{name}: running", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"gpufleet-{name}-") as folder:
        variables = os.environ | {
            "ANSIBLE_HOME": f"{folder}/ansible",
            "MOLECULE_EPHEMERAL_DIRECTORY": f"{folder}/molecule",
            "NO_COLOR": "1",
            "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
        }
        ended = subprocess.run(
            [TOOLS / "molecule", "--base-config", MOLECULE / "config.yml", "test", "--scenario-name", name],
            cwd=CHECKOUT,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    passed = ended.returncode == 0
    if not passed:
        print(ended.stdout[-12000:])
    print(f"{name}: {'passed' if passed else 'FAILED'} after {time.monotonic() - start:.0f} s", flush=True)
    return passed


def main(names: list[str]) -> int:
    known = scenarios()
    unknown = sorted(set(names) - set(known))
    if unknown or not known:
        sys.exit(f"There is no scenario {', '.join(unknown)}; there are: {', '.join(known)}")
    results = [run(name) for name in names or known]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
