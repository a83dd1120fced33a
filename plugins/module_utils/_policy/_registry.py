# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One registry for every image of a policy, so that a site without internet needs no key for each component (S47)."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Dict

from ._model import Image, Nfd, Policy


def relocated(policy: Policy, registry: str) -> Policy:
    """The same policy with every image below ``registry`` (``registry.example.com/mirror``), its path kept.

    ``nvcr.io/nvidia/driver:595`` becomes ``registry.example.com/mirror/nvidia/driver:595``. Versions and digests stay.
    Objects that the policy brings itself (``extraObjects``) stay as written.
    """
    moved: Policy = _moved(policy, registry.strip().rstrip("/"))
    return moved


def _moved(value: Any, registry: str) -> Any:
    if not is_dataclass(value) or isinstance(value, type):
        return value
    if isinstance(value, Image):
        return _image(value, registry)
    if isinstance(value, Nfd):
        values: Dict[str, Any] = dict(value.values)
        image = dict(values.get("image") or {})
        if image.get("repository"):
            values["image"] = {**image, "repository": below(registry, str(image["repository"]))}
        return replace(value, values=values)
    changed = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = _moved(old, registry)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value


def _image(image: Image, registry: str) -> Any:
    if image.repository:
        return replace(image, repository=below(registry, image.repository))
    return replace(image, image=below(registry, image.image)) if image.image else image


def below(registry: str, name: str) -> str:
    """A repository's path below another registry; one that is there already stays."""
    if name == registry or name.startswith(registry + "/"):
        return name
    host, slash, rest = name.partition("/")
    is_host = "." in host or ":" in host or host == "localhost"
    # "nginx:1.27" alone has no host: what looks like a port is its tag.
    if not slash:
        return registry if is_host and ":" not in host else f"{registry}/{name}"
    return f"{registry}/{rest if is_host else name}"
