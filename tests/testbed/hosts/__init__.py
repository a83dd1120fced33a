# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Systemd hosts to run the host plane on: Debian in podman, reached by SSH. README.md beside this tells how."""

from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.host import Host, Hosts
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts.podman import HostError

__all__ = ["Host", "HostError", "Hosts"]
