# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files of users, read on the controller: the modules themselves parse no YAML."""

from __future__ import annotations

from typing import Any, Dict, List

import yaml

MAX_BYTES = 4 * 1024 * 1024
MAX_NODES = 200_000
_OPEN, _CLOSE = "\ue000", "\ue001"  # of the private use area: no file has them for anything else


class BadFile(Exception):
    """A file that cannot be used; the text names the file, the place and what is expected."""


def read_documents(path: str) -> List[Any]:
    """All YAML documents of a file that are not empty. Raises BadFile."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise BadFile(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB, which no values file is")
    try:
        documents = [document for document in yaml.safe_load_all(data) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadFile(f"{path}: is not valid YAML: {' '.join(str(error).split())[:400]}") from error
    for document in documents:
        if _expanded_size(document, {}, set()) > MAX_NODES:
            raise BadFile(f"{path}: its YAML aliases expand to more than {MAX_NODES} values")
    return documents


def read_policy(path: str) -> Dict[str, Any]:
    """The one mapping that a policy file holds; an empty file is an empty mapping. Raises BadFile."""
    documents = read_documents(path)
    if len(documents) > 1:
        kinds = ", ".join(str(d.get("kind", "no kind")) if isinstance(d, dict) else type(d).__name__ for d in documents)
        raise BadFile(f"{path}: holds {len(documents)} documents ({kinds}); a policy file holds one")
    document = documents[0] if documents else {}
    if not isinstance(document, dict):
        raise BadFile(f"{path}: holds a {type(document).__name__}; Helm values or a ClusterPolicy are a mapping")
    _parse_extra_objects(document, path)
    return document


def _parse_extra_objects(document: Dict[str, Any], path: str) -> None:
    """The chart takes extra objects as text too; modules take mappings only."""
    objects = document.get("extraObjects")
    if not isinstance(objects, list):
        return
    for number, item in enumerate(objects):
        if isinstance(item, str):
            try:
                objects[number] = _restored(yaml.safe_load(item.replace("{{", _OPEN).replace("}}", _CLOSE)))
            except yaml.YAMLError as error:
                place = f"{path}: extraObjects[{number}]"
                raise BadFile(f"{place}: is not valid YAML: {' '.join(str(error).split())[:400]}") from error


def _restored(value: Any) -> Any:
    """Templates of Helm are no YAML: they stand as single characters while it is parsed, and are filled in later."""
    if isinstance(value, dict):
        return {_restored(key): _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value.replace(_OPEN, "{{").replace(_CLOSE, "}}") if isinstance(value, str) else value


def _expanded_size(value: Any, sizes: Dict[int, int], inside: set) -> int:
    """Number of values when each alias is written out; a few aliases can stand for billions."""
    if not isinstance(value, (dict, list)):
        return 1
    key = id(value)
    if key in inside:
        return MAX_NODES + 1  # contains itself
    if key not in sizes:
        inside.add(key)
        items = list(value.values()) if isinstance(value, dict) else value
        sizes[key] = 1 + sum(_expanded_size(item, sizes, inside) for item in items)
        inside.discard(key)
    return sizes[key]
