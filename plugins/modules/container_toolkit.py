#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_toolkit
short_description: NVIDIA Container Toolkit and the configuration of container runtimes
version_added: "0.1.0"
author: gpufleet.nvidia contributors (@gpufleet)
description:
  - Installs the packages of the NVIDIA Container Toolkit, gives every container runtime of the host the NVIDIA runtime,
    and has CDI specifications made.
  - Each configuration file is bound to the daemon that reads it. The smallest change is made; comments, order and
    everything else in a file stay.
  - The daemon's own merged configuration has to show the runtime afterwards, and has to differ in nothing else.
    Otherwise the old files come back.
  - A daemon is restarted, or reloaded where it can, only if what it works with changes. Containers keep running.
  - What was there is kept below C(/var/lib/gpufleet/container_toolkit) and comes back with O(state=absent).
attributes:
  check_mode:
    description: Plans and writes nothing.
    support: full
  diff_mode:
    description: Shows every file before and after.
    support: full
options:
  state:
    description:
      - With V(present) runtimes get the NVIDIA runtime.
      - With V(absent) every file is as it was found. Of files that somebody else changed since, only the part of this
        module is taken out. Packages that this module installed are removed.
    type: str
    choices: [present, absent]
    default: present
  packages:
    description:
      - Which packages of the toolkit are installed, all at one version. V(base) is enough for CDI alone, V(none) leaves
        packages alone.
      - In an image tree (O(root)) packages are left alone.
    type: str
    choices: [full, base, none]
    default: full
  version:
    description: Version of the packages, such as V(1.20.2) or V(1.20.2-1), or V(latest). Without it what is installed
      stays, and the newest is installed where nothing is. Only a version that is asked for can be lower than before.
    type: str
  hold:
    description: Whether the packages are held, so that an update of the host does not move them.
    type: bool
    default: true
  repository:
    description: Repository that has the packages. Without it, those that the host has.
    type: dict
    suboptions:
      url:
        description: Address of the repository, or of a mirror of it.
        type: str
        required: true
      path:
        description: Part below the address, where a mirror has another one.
        type: str
      key:
        description: Public key, in letters.
        type: str
      key_file:
        description: File on the host that has the public key.
        type: path
      proxy:
        description: Proxy by which the host reaches the repository, such as V(http://proxy.example.com:3128). A user
          and a password belong into the package manager's own files.
        type: str
      ca_file:
        description: File on the host with the certificates that the repository is trusted by, where the host itself
          does not trust them. Not for zypper, which trusts what the host trusts.
        type: path
      experimental:
        description: Whether versions that are no releases yet are taken.
        type: bool
        default: false
  image_pulls:
    description:
      - How the daemons of O(runtimes) reach registries. Without it that stays as it is. What it does not name, or an
        empty dictionary, takes away what an earlier run set.
      - It becomes the environment of the daemon's systemd unit, so that it holds for whatever else the daemon asks the
        network for, and a daemon is restarted where its environment differs. Docker has no other way, and a restart
        ends its containers unless it has C(live-restore), so that is refused while some run; see O(accept).
      - A daemon that no unit of the host starts is refused, and so is a unit that has one of the variables from
        somebody else. podman has no daemon and takes what its caller's environment says.
    type: dict
    suboptions:
      proxy:
        description: Proxy such as V(http://proxy.example.com:3128), with http, https or socks5. A user and a password
          may be in it, with V(%XX) for signs such as C(@). Only root can read them on the host.
        type: str
      no_proxy:
        description: What is reached without the proxy, as Go programs read C(NO_PROXY), such as V(.example.com),
          V(192.0.2.0/24). The host itself (localhost) needs no entry. Nothing is added to it, so name what of a cluster
          a daemon of k3s, RKE2 or k0s asks for.
        type: list
        elements: str
      ca_file:
        description: File on the host with certificates that are trusted besides those that the host trusts. They are
          copied, so a later change of the file takes another run.
        type: path
  package_manager:
    description: Package manager of the host.
    type: str
    choices: [auto, apt, dnf, zypper]
    default: auto
  accept:
    description: Findings that do not stop the run, by id. V(insecure_version) accepts versions with known
      vulnerabilities, V(held) packages that somebody else holds, V(unsigned_repository) one without a key,
      V(restart_stops_containers) a restart of Docker for O(image_pulls) that ends its containers. Other words are
      refused.
    type: list
    elements: str
    default: []
  runtimes:
    description: Runtimes to configure. Without it, every runtime that is on the host.
    type: list
    elements: dict
    suboptions:
      name:
        description: Which runtime.
        type: str
        required: true
        choices: [containerd, docker, crio, podman, k3s, rke2, microk8s, k0s]
      config:
        description: Its configuration file. It has to be the one that the daemon reads.
        type: path
      drop_in:
        description: File for our part, where the daemon reads drop-ins.
        type: path
      unit:
        description: Its systemd unit.
        type: str
      socket:
        description: Its socket.
        type: path
      placement:
        description: Where our part goes. V(auto) is a drop-in where the daemon reads drop-ins. V(none) leaves the
          runtime as it is.
        type: str
        choices: [auto, drop_in, in_place, none]
        default: auto
      restart_command:
        description: Program and words that restart a daemon which no unit of systemd starts, such as
          V([/etc/init.d/containerd, restart]). Without it such a daemon gets its files and is not restarted. A daemon
          with a unit is restarted by systemd.
        type: list
        elements: str
      user:
        description:
          - User of the host who runs Docker without root. The file is C(~/.config/docker/daemon.json), and is read and
            written with that user's rights alone; the daemon is reloaded, or restarted by that user's systemd.
          - The toolkit's setting C(nvidia-container-cli.no-cgroups) is switched on, unless O(toolkit_config) says
            otherwise. Only for O(runtimes[].name=docker), and not in an image tree (O(root)).
        type: str
  runtime_name:
    description: Name of the runtime, as pods and containers ask for it.
    type: str
    default: nvidia
  runtime_path:
    description: Program of the runtime on the host.
    type: path
    default: /usr/bin/nvidia-container-runtime
  default_runtime:
    description: Whether pods and containers that name no runtime get this one. Without it that stays as it is. With
      V(false) the runtime that was the default before comes back.
    type: bool
  cdi:
    description: Whether runtimes inject CDI devices. Those that do so by themselves need nothing.
    type: bool
    default: false
  nri:
    description:
      - With V(true) runtimes get no NVIDIA runtime. Instead, the interface for NRI plugins is switched on where it is
        off, for the NRI plugin of the toolkit's container. containerd 2 and CRI-O 1.30 have it on, so nothing is
        changed or restarted there.
      - Runtimes that know no NRI (Docker, podman) are left as they are. It excludes O(default_runtime) and O(cdi).
    type: bool
    default: false
  selinux_devices:
    description: Whether SELinux lets containers use device files (its boolean C(container_use_devices)), which podman's
      containers need for GPUs. Without it the boolean stays as it is.
    type: bool
  cdi_specs:
    description:
      - Whether CDI specifications are kept in one place, made anew when they do not fit the driver or the GPUs, and
        never replaced by empty ones. It needs C(nvidia-ctk) beside O(runtime_path).
      - A toolkit before 1.18 gets units that make them anew after driver changes; a newer one brings its own.
    type: bool
    default: true
  cdi_spec:
    description: How specifications are made, where the toolkit's own way does not fit.
    type: dict
    suboptions:
      output:
        description: The file. V(auto) is where the toolkit's service writes, else V(/etc/cdi/nvidia.yaml).
        type: str
        default: auto
      mode:
        description: As C(nvidia-ctk cdi generate --mode).
        type: str
        default: auto
      strategies:
        description: How devices are named.
        type: list
        elements: str
        default: [index, uuid]
      feature_flags:
        description: Feature flags of C(nvidia-ctk cdi generate).
        type: list
        elements: str
        default: []
      disabled_hooks:
        description: Hooks that specifications do without.
        type: list
        elements: str
        default: []
      driver_root:
        description: Where the driver's files are.
        type: str
      dev_root:
        description: Where the device files are.
        type: str
  toolkit_config:
    description:
      - Settings of the toolkit's own configuration C(/etc/nvidia-container-runtime/config.toml), by dotted key such as
        V(nvidia-container-cli.no-cgroups). A key with no value goes back to the toolkit's default.
      - Other settings of the file stay. It is read for every container, so nothing is restarted.
    type: dict
  restart:
    description: Whether a daemon is restarted or reloaded after its configuration changed.
    type: bool
    default: true
  restart_timeout:
    description: Seconds to wait until a daemon answers again and has the runtime.
    type: int
    default: 60
  root:
    description: Folder that has the file system of a host, for golden images. Nothing is started or asked there.
    type: path
    default: /
  progress_file:
    description: File to which lines of progress are appended. The action plugin sets it and shows the lines; do not
      set it.
    type: path
requirements:
  - root on the host
seealso:
  - module: gpufleet.nvidia.gpu_info
  - module: gpufleet.nvidia.mig_partition
"""

EXAMPLES = r"""
- name: Every runtime of the host
  gpufleet.nvidia.container_toolkit:

- name: One version of the packages, from a mirror
  gpufleet.nvidia.container_toolkit:
    version: 1.20.2
    repository:
      url: https://mirror.example.com/nvidia-container-toolkit
      key_file: /etc/pki/mirror.asc

- name: Docker alone, with the NVIDIA runtime as its default
  gpufleet.nvidia.container_toolkit:
    runtimes:
      - name: docker
    default_runtime: true

- name: Docker that a user runs without root, beside nothing else
  gpufleet.nvidia.container_toolkit:
    runtimes:
      - name: docker
        user: alice

- name: Images by a proxy that looks inside
  gpufleet.nvidia.container_toolkit:
    image_pulls:
      proxy: http://proxy.example.com:3128
      no_proxy: [registry.example.com, 192.0.2.0/24]
      ca_file: /etc/pki/proxy.pem

- name: NRI plugins instead of the NVIDIA runtime
  gpufleet.nvidia.container_toolkit:
    nri: true

- name: An image tree
  gpufleet.nvidia.container_toolkit:
    root: /srv/images/gpu-node

- name: Everything as it was found
  gpufleet.nvidia.container_toolkit:
    state: absent
"""

RETURN = r"""
findings:
  description: What a person should know of the options or the host, all problems at once.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the kind of finding. It stays the same between releases.
      returned: always
      type: str
    severity:
      description: One of V(error), V(warning), V(info). An error stops the run before anything is written.
      returned: always
      type: str
    target:
      description: The runtime or file that it is about.
      returned: always
      type: str
    path:
      description: Path of the key that it is about, such as V(runtimes[0].config).
      returned: always
      type: str
    detail:
      description: What was found, with the value and what is allowed.
      returned: always
      type: str
    remedy:
      description: What to do.
      returned: always
      type: str
    accept:
      description: Option that lets the run go on all the same. Empty when there is none.
      returned: always
      type: str
plan:
  description: What differs and what is done about it, in order. The same in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Name of the action within this run, such as V(containerd-0).
      returned: always
      type: str
    verb:
      description: One of V(create), V(update), V(delete), V(restore), V(restart), V(reload), V(install),
        V(upgrade), V(downgrade), V(remove), V(hold), V(unhold).
      returned: always
      type: str
    target:
      description: The file, the unit, or the boolean of SELinux.
      returned: always
      type: str
    reason:
      description: Why, in a few words.
      returned: always
      type: str
    disruptive:
      description: Whether a daemon does not answer for a moment. Containers keep running, but those of a Docker that is
        restarted for O(image_pulls) where O(accept) says so.
      returned: always
      type: bool
    before:
      description: Version of a package, value of a boolean. Of files nothing; the diff has them.
      returned: always
      type: raw
    after:
      description: The same.
      returned: always
      type: raw
found:
  description: What is there.
  returned: always
  type: dict
  contains:
    runtimes:
      description: Runtimes of the host.
      returned: always
      type: list
      elements: dict
      contains:
        name:
          description: Name, as in O(runtimes[].name).
          returned: always
          type: str
        user:
          description: Who runs it without root. Empty for the host's own.
          returned: always
          type: str
        unit:
          description: Its systemd unit. Empty without one.
          returned: always
          type: str
        socket:
          description: Its socket.
          returned: always
          type: str
        program:
          description: Its program.
          returned: always
          type: str
        version:
          description: Version of its program. Empty where it cannot be asked.
          returned: always
          type: str
        running:
          description: Whether it runs.
          returned: always
          type: bool
        config:
          description: The file that it reads.
          returned: always
          type: str
        drop_in:
          description: The file for our part. Empty where there is none.
          returned: always
          type: str
        live:
          description: Whether the daemon had the runtime before the run. V(right), V(lacks), V(silent) when it did not
            answer, or V(stopped).
          returned: when O(state=present)
          type: str
verified:
  description: What the daemons themselves say after the change. Empty in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: What was proved. V(containerd-files) is the merged configuration, V(containerd-live) the running
        daemon, V(containerd-environment) what it was started with.
      returned: always
      type: str
    ok:
      description: Whether it holds.
      returned: always
      type: bool
    detail:
      description: What was seen.
      returned: always
      type: str
done:
  description: Actions that were carried out before the failure.
  returned: failure
  type: list
  elements: str
remaining:
  description: Actions that are left. A second run goes on from there.
  returned: failure
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._entry import run_module


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "packages": {"type": "str", "choices": ["full", "base", "none"], "default": "full"},
            "version": {"type": "str"},
            "hold": {"type": "bool", "default": True},
            "repository": {
                "type": "dict",
                "options": {
                    "url": {"type": "str", "required": True},
                    "path": {"type": "str"},
                    "key": {"type": "str", "no_log": False},
                    "key_file": {"type": "path"},
                    "proxy": {"type": "str"},
                    "ca_file": {"type": "path"},
                    "experimental": {"type": "bool", "default": False},
                },
            },
            "image_pulls": {
                "type": "dict",
                "options": {
                    "proxy": {"type": "str", "no_log": True},
                    "no_proxy": {"type": "list", "elements": "str"},
                    "ca_file": {"type": "path"},
                },
            },
            "package_manager": {"type": "str", "choices": ["auto", "apt", "dnf", "zypper"], "default": "auto"},
            "accept": {"type": "list", "elements": "str", "default": []},
            "runtimes": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "name": {
                        "type": "str",
                        "required": True,
                        "choices": ["containerd", "docker", "crio", "podman", "k3s", "rke2", "microk8s", "k0s"],
                    },
                    "config": {"type": "path"},
                    "drop_in": {"type": "path"},
                    "unit": {"type": "str"},
                    "socket": {"type": "path"},
                    "placement": {
                        "type": "str",
                        "choices": ["auto", "drop_in", "in_place", "none"],
                        "default": "auto",
                    },
                    "restart_command": {"type": "list", "elements": "str"},
                    "user": {"type": "str"},
                },
            },
            "runtime_name": {"type": "str", "default": "nvidia"},
            "runtime_path": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
            "default_runtime": {"type": "bool"},
            "cdi": {"type": "bool", "default": False},
            "nri": {"type": "bool", "default": False},
            "selinux_devices": {"type": "bool"},
            "cdi_specs": {"type": "bool", "default": True},
            "cdi_spec": {
                "type": "dict",
                "options": {
                    "output": {"type": "str", "default": "auto"},
                    "mode": {"type": "str", "default": "auto"},
                    "strategies": {"type": "list", "elements": "str", "default": ["index", "uuid"]},
                    "feature_flags": {"type": "list", "elements": "str", "default": []},
                    "disabled_hooks": {"type": "list", "elements": "str", "default": []},
                    "driver_root": {"type": "str"},
                    "dev_root": {"type": "str"},
                },
            },
            "toolkit_config": {"type": "dict"},
            "restart": {"type": "bool", "default": True},
            "restart_timeout": {"type": "int", "default": 60},
            "root": {"type": "path", "default": "/"},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    run_module(module)


if __name__ == "__main__":
    main()
