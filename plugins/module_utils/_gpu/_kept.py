# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layout that a host is given again at boot, as a file: for each GPU its instances with their places."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ._layout import Wish
from ._names import BadName, parse
from ._state import State, Target

VERSION = 1


class BadLayout(ValueError):
    """The file is none of ours."""


@dataclass(frozen=True)
class KeptGpu:
    """What one GPU is given."""

    enabled: bool
    wishes: Tuple[Wish, ...]


def of_state(state: State) -> Dict[str, Any]:
    """What a GPU has now."""
    names = {profile.id: profile.name for profile in state.profiles}
    return {
        "enabled": state.on,
        "instances": [
            _instance(names[each.profile_id], each.start, [part.slices for part in each.compute])
            for each in state.instances
            if each.profile_id in names
        ],
    }


def of_target(target: Target) -> Dict[str, Any]:
    """What a GPU will have once its mode is active."""
    placed = [(kept.item, kept.instance.start) for kept in target.plan.keep]
    placed += [(new.item, new.start) for new in target.plan.create]
    instances = [_instance(item.profile.name, start, list(item.compute)) for item, start in placed]
    return {"enabled": target.enabled, "instances": instances if target.enabled else []}


def _instance(profile: str, start: int, compute: List[int]) -> Dict[str, Any]:
    return {"profile": profile, "start": start, "compute": sorted(compute, reverse=True)}


def to_json(gpus: Mapping[str, Mapping[str, Any]]) -> str:
    """The file's text; ``gpus`` by UUID."""
    return json.dumps({"version": VERSION, "gpus": gpus}, indent=1, sort_keys=True) + "\n"


def merged(old: str, gpus: Mapping[str, Mapping[str, Any]]) -> str:
    """The file's text with GPUs of this run put in; those that it does not name stay. Raises BadLayout."""
    from_json(old)
    return to_json({**_document(old), **gpus})


def from_json(text: str) -> Dict[str, KeptGpu]:
    """By UUID. Raises BadLayout."""
    try:
        return {
            str(uuid): KeptGpu(gpu["enabled"] is True, tuple(_wishes(gpu["instances"])))
            for uuid, gpu in _document(text).items()
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadLayout(f"the kept layout cannot be used: {type(error).__name__} {error}") from None


def _wishes(instances: Sequence[Mapping[str, Any]]) -> List[Wish]:
    return [
        Wish(parse(each["profile"]), 1, int(each["start"]), tuple(int(part) for part in each["compute"]))
        for each in instances
    ]


def _document(text: str) -> Dict[str, Any]:
    try:
        document = json.loads(text)
        if document["version"] != VERSION or not isinstance(document["gpus"], dict):
            raise BadLayout(f"the kept layout is of version {document['version']!r}, not {VERSION}")
    except (KeyError, TypeError, AttributeError, RecursionError, ValueError) as error:
        if isinstance(error, (BadLayout, BadName)):
            raise
        raise BadLayout(f"the kept layout cannot be read: {type(error).__name__} {error}") from None
    gpus: Dict[str, Any] = document["gpus"]
    return gpus
