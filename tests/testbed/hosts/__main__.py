# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test hosts by hand, and for molecule.

python -m ansible_collections.gpufleet.nvidia.tests.testbed.hosts COMMAND ...
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import gpus, images, runtimes, snapshot
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.host import Host, Hosts, sweep
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import HostError, podman, prepare
from ansible_collections.gpufleet.nvidia.tests.testbed.programs import say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hosts", description="Test hosts: Debian with systemd, in podman.")
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("images", help="make the images that are not there yet; the plain ones if none is named")
    made.add_argument("names", nargs="*", metavar="NAME", help=", ".join(images.SYSTEMS))
    commands.add_parser("prune", help="remove images of other recipes, and hosts whose owner is gone")
    for name, words in (
        ("up", "start hosts; those that run already stay as they are"),
        ("down", "end the hosts of a folder, and remove the folder"),
        ("list", "show the hosts of a folder"),
        ("gpus", "give the hosts GPUs: --product NAME --count N, as `nvml-double create` has them"),
        ("runtimes", "start container runtimes (containerd, docker) and give them an image; podman needs no start"),
        ("ssh", "log in to a host"),
        ("restart", "shut a host down and boot it again"),
        ("mark", "write down what is on the disks"),
        ("compare", "show what has changed on the disks since; status 1 if anything has"),
    ):
        command = commands.add_parser(name, help=words)
        command.add_argument("--folder", type=Path, default=Path("build/hosts"), help="keys, inventory (%(default)s)")
        if name == "gpus":
            command.add_argument("--product", action="append", required=True)
            command.add_argument("--count", action="append", required=True)
            command.add_argument(
                "--driver", action="store_true", help="and what else of a driver the toolkit looks for"
            )
        if name == "runtimes":
            command.add_argument("runtimes", nargs="+", choices=("containerd", "docker", "podman"))
            words = "containerd 2.4.2 in place of Debian's there"
            command.add_argument("--upstream", action="append", default=[], metavar="HOST", help=words)
        if name in ("up", "ssh", "restart"):
            command.add_argument("names", nargs="*" if name == "up" else 1, metavar="NAME")
        if name == "up":
            command.add_argument("--system", choices=list(images.SYSTEMS), help="default: the name's, else debian12")
    return parser


def _up(hosts: Hosts, options: argparse.Namespace) -> int:
    for name in options.names or ["debian12"]:
        if name not in hosts.hosts:
            hosts.start(name, options.system or images.by_name_of_host(name))
    return _list(hosts, options)


def _list(hosts: Hosts, options: argparse.Namespace) -> int:
    for host in hosts.hosts.values():
        say(f"{host.name}\t{host.id[:12]}\tssh port {host.port}")
    say(f"ansible-inventory -i {hosts.inventory()} --graph" if hosts.hosts else "no hosts")
    return 0


def _down(hosts: Hosts, options: argparse.Namespace) -> int:
    hosts.stop()
    shutil.rmtree(hosts.folder, ignore_errors=True)
    return 0


def _named(hosts: Hosts, options: argparse.Namespace) -> Host:
    if options.names[0] not in hosts.hosts:
        raise HostError(f"There is no host {options.names[0]!r} in {hosts.folder}")
    return hosts.hosts[options.names[0]]


def _ssh(hosts: Hosts, options: argparse.Namespace) -> int:
    host = _named(hosts, options)
    os.execvp("ssh", ["ssh", *host.ssh_options(), "-p", str(host.port), f"{images.USER}@127.0.0.1"])


def _restart(hosts: Hosts, options: argparse.Namespace) -> int:
    _named(hosts, options).restart()
    return 0


def _gpus(hosts: Hosts, options: argparse.Namespace) -> int:
    words = []
    for product, count in zip(options.product, options.count, strict=True):
        words += ["--product", product, "--count", count]
    for host in hosts.hosts.values():
        gpus.install(host, *words)
        if options.driver:
            gpus.install_driver(host)
    return 0


def _runtimes(hosts: Hosts, options: argparse.Namespace) -> int:
    for host in hosts.hosts.values():
        if host.name in options.upstream:
            runtimes.install_containerd(host)
        runtimes.start(host, *(name for name in options.runtimes if name != "podman"))
        runtimes.give_image(host, *options.runtimes)
    return 0


def _mark(hosts: Hosts, options: argparse.Namespace) -> int:
    for host in hosts.hosts.values():
        (hosts.folder / f"{host.name}.snapshot").write_text(json.dumps(host.snapshot()))
    return 0


def _compare(hosts: Hosts, options: argparse.Namespace) -> int:
    if not hosts.hosts:
        raise HostError(f"There are no hosts in {hosts.folder}")
    found = []
    for host in hosts.hosts.values():
        before = json.loads((hosts.folder / f"{host.name}.snapshot").read_text())
        found += [f"{host.name}: {line}" for line in snapshot.differences(before, host.snapshot())]
    say("\n".join(found) if found else "nothing has changed")
    return 1 if found else 0


def _prune() -> int:
    prepare()
    sweep()
    wanted = {system.image() for system in images.SYSTEMS.values()}
    listed = podman("images", "--format", "{{.Repository}}:{{.Tag}}", images.REPOSITORY).stdout.decode().split()
    for image in sorted(set(listed) - wanted):
        podman("rmi", image)
        say(f"removed {image}")
    return 0


FOLDER_COMMANDS = {
    "up": _up, "down": _down, "list": _list, "gpus": _gpus, "runtimes": _runtimes, "ssh": _ssh, "restart": _restart,
    "mark": _mark, "compare": _compare,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "prune":
            return _prune()
        if options.command == "images":
            for name in options.names or images.PLAIN:
                say(f"{name}: {images.ensure(name)}")
            return 0
        return FOLDER_COMMANDS[options.command](Hosts(options.folder, lasting=True).find(), options)
    except HostError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
