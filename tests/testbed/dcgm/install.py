# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives test hosts an apt repository with packages of DCGM and CUDA, and the exporter; for tests, and for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.dcgm.install --folder build/hosts
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.nvidia.tests.testbed.dcgm.packages import PROGRAM, packages
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.packages import cuda, repository
from ansible_collections.gpufleet.nvidia.tests.testbed.packages.package import Package

PLACE = "/srv/dcgm"
LIST = "/etc/apt/sources.list.d/cuda.list"
EXPORTER = "/usr/bin/dcgm-exporter"
PROMETHEUS = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: gpus
    static_configs: [{{targets: ["{target}"]}}]
"""


def serve(host: Host, parts: Sequence[Package]) -> None:
    """A repository of the host's own, as the driver's role or somebody else sets it up; its lists are read."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        key = repository.Key(folder)
        repository.apt(parts, folder / "repository", key)
        (folder / "repository/key.asc").write_text(key.text)
        key.close()
        packed = subprocess.run(["tar", "-C", folder / "repository", "-c", "."], capture_output=True, check=True).stdout
    host.run(f"rm -rf {PLACE}; mkdir -p {PLACE} && tar -C {PLACE} --no-same-owner -x", stdin=packed)
    host.put(LIST, f"deb [signed-by={PLACE}/key.asc] file:{PLACE} /\n")
    own = f"-o Dir::Etc::sourcelist={LIST} -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
    host.run(f"apt-get -qq update {own}", timeout=60)


def install(host: Host) -> None:
    """The repository, and the exporter where its makers' `make install` puts it."""
    serve(host, [*packages(), *cuda.packages()])
    host.put(EXPORTER, PROGRAM, mode=0o755)


def scrape(host: Host, target: str) -> None:
    """Have the host's Prometheus scrape an exporter every second."""
    host.put("/etc/prometheus/prometheus.yml", PROMETHEUS.format(target=target))
    host.run("systemctl restart prometheus")


def query(host: Host, words: str) -> list[dict[str, Any]]:
    """What its Prometheus answers to a query."""
    program = (
        "import sys, urllib.parse, urllib.request as r; "
        "url = 'http://127.0.0.1:9090/api/v1/query?query=' + urllib.parse.quote(sys.argv[1]); "
        "print(r.urlopen(url).read().decode())"
    )
    answer: list[dict[str, Any]] = json.loads(host.run(["python3", "-c", program, words]).stdout)["data"]["result"]
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="dcgm", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), help="of the hosts (%(default)s)")
    for host in Hosts(parser.parse_args().folder, lasting=True).find().hosts.values():
        install(host)
    return 0


if __name__ == "__main__":
    sys.exit(main())
