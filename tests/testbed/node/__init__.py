# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes node: kubelet and containerd on a test host, joined to a control plane on this machine."""

from ansible_collections.gpufleet.nvidia.tests.testbed.node.node import Node, pod

__all__ = ["Node", "pod"]
