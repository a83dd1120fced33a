# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML files of users, read on the controller: the modules themselves parse no YAML."""

from __future__ import annotations

from typing import Any, Dict, Hashable, List, Union

import yaml

MAX_BYTES = 1024 * 1024  # as much as a ConfigMap may hold; the parser takes 10 seconds for it
MAX_NODES = 200_000
MAX_NUMBER = 100  # characters of a number: some forms take hours to compute when they are long
_OPEN, _CLOSE = "\ue000", "\ue001"  # of the private use area: no file has them for anything else


class BadFile(Exception):
    """A file that cannot be used; the text names the file, the place and what is expected."""


def read_documents(path: str, unique: bool = False) -> List[Any]:
    """All YAML documents of a file that are not empty; ``unique`` refuses keys that are there twice. Raises BadFile."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise BadFile(f"{path}: larger than {MAX_BYTES // 1024 // 1024} MiB, which no values file is")
    return [document for document in _parsed(data, path, unique=unique) if document is not None]


def _parsed(text: Union[bytes, str], place: str, unique: bool = False) -> List[Any]:
    """All documents of a text; each is judged before anything in it is expanded. Raises BadFile."""
    documents = []
    try:
        loader = yaml.SafeLoader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                if _expanded_size(node, {}, set()) > MAX_NODES:
                    raise BadFile(f"{place}: its YAML aliases expand to more than {MAX_NODES} values")
                if unique:
                    _refuse_twice(loader, node, place, set())
                documents.append(loader.construct_document(node))
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadFile(f"{place}: is not valid YAML: {' '.join(str(error).split())[:400]}") from error
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
            place = f"{path}: extraObjects[{number}]"
            made = _parsed(item.replace("{{", _OPEN).replace("}}", _CLOSE), place)
            if len(made) > 1:
                raise BadFile(f"{place}: holds {len(made)} documents; an extra object is one")
            objects[number] = _restored(made[0]) if made else None


def _restored(value: Any) -> Any:
    """Templates of Helm are no YAML: they stand as single characters while it is parsed, and are filled in later."""
    if isinstance(value, dict):
        return {_restored(key): _restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value.replace(_OPEN, "{{").replace(_CLOSE, "}}") if isinstance(value, str) else value


def _refuse_twice(loader: yaml.SafeLoader, node: yaml.Node, place: str, seen: set) -> None:
    """Keys that are in one mapping twice, at any depth: YAML would silently take the last. Raises BadFile."""
    if id(node) in seen or isinstance(node, yaml.ScalarNode):
        return
    seen.add(id(node))
    first: Dict[Any, int] = {}
    for item in node.value:
        key, value = item if isinstance(node, yaml.MappingNode) else (None, item)
        if isinstance(key, yaml.ScalarNode):
            merges = key.tag == "tag:yaml.org,2002:merge"
            name, line = (key.tag if merges else loader.construct_object(key)), key.start_mark.line + 1
            if not isinstance(name, Hashable):
                continue  # it is refused when the document is made
            if name in first:
                raise BadFile(f"{place}: line {line}: the key {key.value} is there twice, first in line {first[name]}")
            first[name] = line
        _refuse_twice(loader, value, place, seen)


def _expanded_size(node: yaml.Node, sizes: Dict[int, int], inside: set) -> int:
    """Number of values with each alias and merge key written out; a few can stand for billions. Raises ValueError."""
    if isinstance(node, yaml.ScalarNode):
        if len(node.value) > MAX_NUMBER and node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
            raise ValueError(f"a number of {len(node.value)} characters, line {node.start_mark.line + 1}")
        return 1
    key = id(node)
    if key in inside:
        return MAX_NODES + 1  # contains itself
    if key not in sizes:
        inside.add(key)
        items = [value for pair in node.value for value in pair] if isinstance(node, yaml.MappingNode) else node.value
        sizes[key] = 1 + sum(_expanded_size(item, sizes, inside) for item in items)
        inside.discard(key)
    return sizes[key]
