# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleets of the folder ``stack``, for tests that put something between the module and the cluster."""

from __future__ import annotations

from ansible_collections.gpufleet.nvidia.tests.integration.stack.conftest import _fleets, _impatient, facts, fleets

__all__ = ["_fleets", "_impatient", "facts", "fleets"]
