# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run reads from the parameters of its module."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._kube._connection import Connection
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._stack._request import Request


def request(**params: Any) -> Request:
    # Nothing is sent: a connection needs no server for that.
    connection = Connection.__new__(Connection)
    return Request.from_params({"namespace": "gpu-operator", **params}, False, lambda _line: None, connection)


@pytest.mark.rows("S47")
def test_one_registry_reaches_the_drivers_of_groups() -> None:
    groups = [{"name": "a", "driver": {"repository": "nvcr.io/nvidia"}}, {"name": "b"}, "no group"]
    asked = request(node_groups=groups, image_registry="mirror.example.com/gpu/")
    assert asked.node_groups[0] == {"name": "a", "driver": {"repository": "mirror.example.com/gpu/nvidia"}}
    assert asked.node_groups[1:] == [{"name": "b"}, "no group"]
    assert groups[0] == {"name": "a", "driver": {"repository": "nvcr.io/nvidia"}}


@pytest.mark.parametrize(("option", "value"), [("stage_timeout", 0), ("timeout", -1), ("lock_wait", -1)])
def test_seconds_below_what_is_allowed_are_refused_by_name(option: str, value: int) -> None:
    with pytest.raises(
        Failure, match=rf"{option} is {value}: seconds from \d on are allowed. Nothing has been changed"
    ):
        request(**{option: value})
