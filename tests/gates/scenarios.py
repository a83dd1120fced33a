# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs molecule's scenarios: all, those named, or with --hosts or --clusters those of the roles that work there.

Exit status 0 only if all passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from ansible_collections.gpufleet.nvidia.tests.gates.place import CHECKOUT

MOLECULE = CHECKOUT / "molecule"
TOOLS = Path(sys.executable).parent
# Beside those of the roles: .ci/run has no time for them.
MORE = {"nvidia_driver_changes"}


def scenarios() -> list[str]:
    return sorted(path.parent.name for path in MOLECULE.glob("*/molecule.yml"))


def on_hosts(name: str) -> bool:
    """Whether a scenario works on test hosts, by the group of its play; the others do on a practice cluster."""
    return bool(yaml.safe_load((MOLECULE / name / "converge.yml").read_text())[0]["hosts"] == "gpu_hosts")


def run(name: str) -> bool:
    """One scenario from create to destroy; what it says is shown only when it fails."""
    start = time.monotonic()
    config = MOLECULE / ("hosts.yml" if on_hosts(name) else "config.yml")
    print(f"{name}: running", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"gpufleet-{name}-") as folder:
        variables = os.environ | {
            "ANSIBLE_HOME": f"{folder}/ansible",
            "MOLECULE_EPHEMERAL_DIRECTORY": f"{folder}/molecule",
            "NO_COLOR": "1",
            "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
        }
        ended = subprocess.run(
            [TOOLS / "molecule", "--base-config", config, "test", "--scenario-name", name],
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
        # A long result may push the sentence that tells why out of what is shown.
        told = [line[:2000] for line in ended.stdout.splitlines() if line.startswith("[ERROR]")]
        print("\n".join([ended.stdout[-12000:], *told]))
    print(f"{name}: {'passed' if passed else 'FAILED'} after {time.monotonic() - start:.0f} s", flush=True)
    return passed


def main(names: list[str]) -> int:
    known = scenarios()
    if names in ([], ["--hosts"], ["--clusters"]):
        of_roles = [name for name in known if name not in MORE]
        chosen = [name for name in of_roles if on_hosts(name) == (names == ["--hosts"])] if names else known
    else:
        chosen = names
    unknown = sorted(set(chosen) - set(known))
    if unknown or not chosen:
        sys.exit(f"There is no scenario {', '.join(unknown or names)}; there are: {', '.join(known)}")
    # Those on hosts have hosts of their own, and wait more than they work; those on clusters are heavy.
    hosts = [name for name in chosen if on_hosts(name)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(run, hosts))
    results += [run(name) for name in chosen if name not in hosts]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
