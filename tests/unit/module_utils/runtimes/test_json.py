# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that is edited in place, read again by the standard library: the change, and nothing else."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._json import Json, JsonError
from ansible_collections.gpufleet.nvidia.tests.helpers.json_documents import NAMES, WORDS, document, read
from ansible_collections.gpufleet.nvidia.tests.helpers.toml_documents import broken

DAEMON = """\
{
  "runtimes": {
    "kata": {"path": "/usr/bin/kata", "runtimeArgs": []}
  },
  "exec-opts": ["native.cgroupdriver=systemd"],
  "features": {
    "buildkit": true
  }
}
"""


def edited(text: str, *path: str, to: Any) -> str:
    made = Json(text)
    made.set(path, to)
    assert read(made.text()) == made.data
    return made.text()


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else (type(value).__name__, repr(value))


def test_a_new_member_stands_as_its_neighbours_do() -> None:
    assert edited(DAEMON, "features", "cdi", to=True) == DAEMON.replace("true\n", 'true,\n    "cdi": true\n')
    new = edited(DAEMON, "runtimes", "nvidia", to={"path": "nvidia-container-runtime", "args": []})
    assert new == DAEMON.replace(
        "[]}\n", '[]},\n    "nvidia": {\n      "path": "nvidia-container-runtime",\n      "args": []\n    }\n'
    )
    assert edited(DAEMON, "runtimes", "kata", "x", to={"y": [1]}) == DAEMON.replace("[]}", '[], "x": {"y": [1]}}')


def test_an_empty_file_becomes_an_object_with_four_blanks() -> None:
    for text in ("", "{}\n", "\n"):
        assert edited(text, "runtimes", "nvidia", "path", to="x") == (
            '{\n    "runtimes": {\n        "nvidia": {\n            "path": "x"\n        }\n    }\n}\n'
        )
    assert edited("{}", "a", to=1) == '{\n    "a": 1\n}'
    assert edited('{"a":{}}', "a", "b", to={}) == '{"a":{"b": {}}}'
    assert Json("").data == {}
    assert edited("", to={}) == ""


def test_a_value_is_replaced_in_its_place() -> None:
    assert edited(DAEMON, "exec-opts", to=["a"]) == DAEMON.replace('["native.cgroupdriver=systemd"]', '["a"]')
    assert edited(DAEMON, "features", to={"buildkit": False}) == DAEMON.replace("true", "false")
    assert edited('{"a": 1}', "a", to=1.0) == '{"a": 1.0}'
    assert edited('{"a": 1e0}', "a", to=1.0) == '{"a": 1e0}'


def test_what_was_added_is_taken_away_again_without_a_trace() -> None:
    for text in (DAEMON, DAEMON.replace("\n", "\r\n"), '{"a": 1}', "{\n}\n"):
        made = Json(text)
        made.set(["new"], {"x": [1, {"y": None}]})
        assert "\n" not in made.text().replace("\r\n", "") or "\r" not in text
        assert made.delete(["new"])
        assert made.delete(["new"]) is False
        assert made.text() == text.replace("{\n}", "{}")


def test_an_object_is_never_replaced_by_a_value_nor_a_value_by_an_object() -> None:
    made = Json(DAEMON)
    changes: list[Any] = [(["runtimes"], 1), (["exec-opts"], {}), (["exec-opts", "x"], 1), ([], 1), ("a", 1)]
    changes += [(["a"], value) for value in (float("nan"), b"x", {1: 2}, "\udcff", object())]
    for path, value in changes:
        with pytest.raises(JsonError):
            made.set(path, value)
        assert made.text() == DAEMON
    with pytest.raises(JsonError, match="exec-opts is no object"):
        made.set([], {"new": 1, "exec-opts": {"x": 1}})
    assert made.text() == DAEMON


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{\n"a": 1,\n}', 3, "'}' where a name should stand"),
        ('{"a": 1\n"b": 2}', 2, "where , or } should stand"),
        ('{\n"a": 1, "a": 2}', 2, "'a' is there already"),
        ('{"a": {"\\u0062": 1, "b": 2}}', 1, "'b' is there already"),
        ("[]", 1, "where { should stand"),
        ("{} {}", 1, "after the end of the object"),
        ('{"a": NaN}', 1, "'NaN}' is no value"),
        ('{"a": 01}', 1, "is no value"),
        ('{"a": "\n"}', 1, "a text that does not end on its line"),
        ('{"a": \n', 2, "the end of the text is no value"),
        ('{"a"}', 1, "where : should stand"),
        ("# x\n{}", 1, "where { should stand"),
        ('{"a": "\udcff"}', 1, "a byte that is no UTF-8"),
        ("\ufeff{}", 1, "where { should stand"),
    ],
)
def test_broken_input_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(JsonError) as caught:
        Json(text)
    assert caught.value.line == line
    assert what in str(caught.value)


MANY = 1_000_000
HUGE = {
    "arrays": '{"a": ' + "[" * MANY,
    "objects": '{"a":' * (MANY // 5),
    "closed": '{"a": ' + "[" * 5000 + "]" * 5000 + "}",
    "16 MiB": '{"a": "' + "x" * 16 * 1024 * 1024 + '"}',
    "zeros": "\0" * MANY,
    "string": '{"a": "' + "x\\n" * (MANY // 3),
    "blanks": "{" + " \n" * (MANY // 2),
    "number": '{"a": ' + "1" * (MANY - 10) + "}",
    "random": "".join(chr((number * 7919) % 256) for number in range(MANY)),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_and_deep_input_is_refused_in_bounded_time(name: str) -> None:
    began = time.process_time()
    with pytest.raises(JsonError) as caught:
        Json(HUGE[name])
    assert caught.value.line >= 1
    assert time.process_time() - began < 3


# ---- made-up documents


def keys(data: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in data.items():
        yield (*path, name), value
        if isinstance(value, dict):
            yield from keys(value, (*path, name))


def at(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randint(0, 5 if depth < 2 else 3)
    if kind <= 1:
        return rng.choice((True, None, 0, -1, 10**20, 0.5, -0.0, 1e300))
    if kind <= 3:
        return "".join(rng.choice(WORDS) for _each in range(rng.randint(0, 3)))
    if kind == 4:
        return [some_value(rng, depth + 1) for _each in range(rng.randint(0, 3))]
    return {rng.choice(NAMES): some_value(rng, depth + 1) for _each in range(rng.randint(0, 3))}


def put(data: Any, path: tuple[str, ...], value: Any) -> None:
    """What ``set`` is to do, said with plain dicts. KeyError where it must refuse."""
    for name in path[:-1]:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise KeyError(name)
    old = data.get(path[-1])
    if path[-1] in data and isinstance(old, dict) != isinstance(value, dict):
        raise KeyError(path[-1])
    if isinstance(value, dict) and isinstance(old, dict):
        for name, inner in value.items():
            put(old, (name,), inner)
    else:
        data[path[-1]] = copy.deepcopy(value)


def edit(seed: int) -> str:
    """One edit of one document; what kind it was."""
    rng = random.Random(f"edit json {seed}")
    made = document(seed)
    data = read(made.text)
    assert plain(Json(made.text).data) == plain(data)
    known = [path for path, _value in keys(data)]
    path = rng.choice(known) if known and rng.random() < 0.8 else ()
    if path and rng.random() < 0.35:
        return edit_delete(made.text, made.members[path], data, path)
    if not path or rng.random() < 0.4:
        path = (*path, *(rng.choice(NAMES) + "new" for _each in range(rng.randint(1, 2))))
    value = at(data, path) if path in known and rng.random() < 0.2 else some_value(rng)
    wanted, edited = copy.deepcopy(data), Json(made.text)
    try:
        put(wanted, path, value)
    except KeyError:
        with pytest.raises(JsonError):
            edited.set(path, value)
        assert edited.text() == made.text
        return "refused"
    edited.set(path, value)
    new = edited.text()
    assert plain(read(new)) == plain(wanted) == plain(edited.data)
    assert list(keys(read(new)))[0:1] == list(keys(wanted))[0:1]
    if plain(wanted) == plain(data):
        assert new == made.text
        return "equal"
    if path in made.members:
        start, end = made.members[path]
        assert new.startswith(made.text[:start])
        assert new.endswith(made.text[end:])
        return "changed"
    ahead = next((n for n, (one, other) in enumerate(zip(made.text, new)) if one != other), len(made.text))
    rest = made.text[ahead:]
    assert new.endswith((rest, rest.lstrip(" \t\r\n"))), (made.text, new)
    return "added"


def edit_delete(text: str, span: tuple[int, int], data: dict[str, Any], path: tuple[str, ...]) -> str:
    made = Json(text)
    assert made.delete((*path, "not there")) is False
    assert made.delete(path) is True
    del at(data, path[:-1])[path[-1]]
    assert plain(read(made.text())) == plain(data)
    shorter = len(text) - len(made.text())
    start = next((n for n, (one, other) in enumerate(zip(text, made.text())) if one != other), len(made.text()))
    assert text[:start] + text[start + shorter :] == made.text()
    gone = text[: span[0]] + text[span[1] :]
    commas = len("".join(gone.split())) - len("".join(made.text().split()))
    assert commas in (0, 1)
    return "deleted"


def prove_edits(seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        try:
            kind = edit(seed)
        except Exception as error:
            raise AssertionError(f"document {seed}") from error
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def attempt(text: str) -> tuple[Json | None, JsonError]:
    try:
        return Json(text), JsonError(0, "")
    except JsonError as error:
        return None, error


def prove_broken(seeds: range) -> int:
    """How many were refused; each as the standard library does it."""
    refused = 0
    for seed in seeds:
        text = broken(random.Random(f"broken json {seed}"), document(seed).text)
        try:
            wanted = plain(read(text))
        except ValueError:
            wanted = None
        made, error = attempt(text)
        if made:
            assert plain(made.data) == wanted, seed
            continue
        assert wanted is None, (seed, error)
        assert 1 <= error.line <= text.count("\n") + 1
        assert str(error).startswith(f"line {error.line}: ")
        refused += 1
    return refused


def test_a_sample_of_edited_documents_holds_the_change_and_nothing_else() -> None:
    counts = prove_edits(range(2000))
    assert sum(counts.values()) == 2000
    assert all(counts.get(kind, 0) > 20 for kind in ("added", "changed", "deleted", "equal", "refused")), counts


def test_a_sample_of_broken_documents_is_refused_with_the_line() -> None:
    assert prove_broken(range(2000)) > 1000


@pytest.mark.long
def test_10000_edited_and_10000_broken_documents() -> None:
    assert sum(prove_edits(range(10_000)).values()) == 10_000
    seed = refused = 0
    while refused < 10_000:
        refused += prove_broken(range(seed, seed + 100))
        seed += 100
    assert refused >= 10_000
    assert seed < 20_000


def test_order_and_numbers_survive() -> None:
    text = '{"b": 1.50, "a": 12345678901234567890, "c": "\\u00fc"}'
    made = Json(text)
    made.set([], json.loads(text))
    assert made.text() == text
    made.set(["d"], "ü")
    assert made.text() == text[:-1] + ', "d": "ü"}'
