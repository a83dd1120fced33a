# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes' own schemas, strict: unknown fields are refused. Each is read once; kubernetes-validate reads anew."""

from __future__ import annotations

import functools
import re
from typing import Any

from jsonschema import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource

KUBERNETES = "1.36"


@functools.cache
def _folder() -> str:
    version = [v for v in utils.all_versions() if utils.major_minor(v) == KUBERNETES][-1]
    return f"kubernetes-json-schema/v{version}-local-strict"


@functools.cache
def _definitions() -> Registry[Any]:
    contents = utils.schema_contents(f"{_folder()}/_definitions.json", KUBERNETES)
    registry: Registry[Any] = Registry()
    return Resource.from_contents(contents) @ registry


@functools.cache
def _validator(kind: str, api_version: str) -> Draft202012Validator:
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = utils.schema_contents(f"{_folder()}/{kind.lower()}-{group}.json", KUBERNETES)
    return Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions())


def validate(obj: dict[str, Any]) -> None:
    """Raises jsonschema's ValidationError."""
    _validator(obj["kind"], obj["apiVersion"]).validate(obj)
