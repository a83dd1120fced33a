# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up documents are edited and read again by tomllib and tomlkit: what was asked for changes, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toml import (
    Moment,
    Toml,
    TomlError,
    dumps,
    parse,
)
from ansible_collections.gpufleet.nvidia.tests.helpers.toml_documents import (
    MOMENTS,
    NAMES,
    WORDS,
    Document,
    broken,
    document,
    plain,
    read,
    read_tomlkit,
)

Path = tuple[str, ...]


STUMBLED: list[str] = []


def keys(data: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key that is reached by names alone."""
    for name, value in data.items():
        yield (*path, name), value
        if isinstance(value, dict):
            yield from keys(value, (*path, name))


def at(data: Any, path: Path) -> Any:
    for name in path:
        data = data[name]
    return data


def some_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randint(0, 7 if depth < 2 else 4)
    if kind == 0:
        return rng.choice((True, False, 0, -1, 2**63 - 1))
    if kind == 1:
        return rng.choice((0.5, -0.0, 1e300, float("inf"), float("nan"), 1.0))
    if kind == 2:
        return Moment(rng.choice(MOMENTS))
    if kind in (3, 4):
        return "".join(rng.choice(WORDS) for _each in range(rng.randint(0, 3)))
    if kind in (5, 6):
        return [some_value(rng, depth + 1) for _each in range(rng.randint(0, 4))]
    return {rng.choice(NAMES): some_value(rng, depth + 1) for _each in range(rng.randint(0, 3))}


def merged(data: Any, path: Path, value: Any) -> None:
    """What ``set`` is to do, said with plain dicts."""
    if isinstance(value, dict):
        here = data
        for name in path:
            here = here.setdefault(name, {})
        for name, inner in value.items():
            merged(data, (*path, name), inner)
    else:
        merged(data, path[:-1], {})
        at(data, path[:-1])[path[-1]] = copy.deepcopy(value)


def fits(made: Document, data: Any, path: Path, value: Any) -> bool:
    """Whether ``set`` replaces no table by a value, no value by a table, and no array of tables."""
    arrays = {array_of(where) for where, _one, _two in made.sections}
    here = data
    for number, name in enumerate(path):
        if not isinstance(here, dict):
            return False
        if name not in here:
            return True
        here = here[name]
        if path[: number + 1] in arrays:
            return plain(here) == plain(value)
    if not isinstance(value, dict):
        return not isinstance(here, dict)
    return isinstance(here, dict) and all(fits(made, data, (*path, name), one) for name, one in value.items())


def array_of(where: tuple[Any, ...]) -> tuple[Any, ...]:
    """The names before the first number."""
    numbers = [place for place, part in enumerate(where) if isinstance(part, int)]
    return where[: numbers[0]] if numbers else ()


def changed(rng: random.Random, old: list[Any]) -> list[Any]:
    """The list with items taken out, put in and changed."""
    new = [one for one in old if rng.random() < 0.8]
    for _each in range(rng.randint(0, 2)):
        new.insert(rng.randint(0, len(new)), some_value(rng, 1))
    return new


def inside(old: str, new: str, start: int, end: int) -> bool:
    """Whether all that differs lies between two places of the old text."""
    return new.startswith(old[:start]) and new[start:].endswith(old[end:])


def only_more(old: str, new: str) -> bool:
    """Whether one piece was put in."""
    ahead = next((n for n, (one, other) in enumerate(zip(old, new)) if one != other), min(len(old), len(new)))
    return len(new) > len(old) and new.endswith(old[ahead:])


def holder(made: Document, path: Path) -> tuple[int, int]:
    """The statement that a key is, or stands in the braces of; (0, 0) where it has none."""
    for number in range(len(path), 0, -1):
        if path[:number] in made.statements:
            return made.statements[path[:number]]
    return (0, 0)


def judge(text: str, wanted: Any, kit: bool) -> None:
    assert plain(read(text)) == wanted
    if kit:
        with stumbling(text):
            assert plain(read_tomlkit(text)) == wanted


@contextlib.contextmanager
def stumbling(text: str) -> Iterator[None]:
    """tomlkit stumbles over a few documents that TOML 1.0 allows; how many is asserted below."""
    try:
        yield
    except (AttributeError, ValueError) as error:
        if "OutOfOrderTableProxy" not in str(error):
            raise
        STUMBLED.append(text)


def edit_set(rng: random.Random, made: Document, data: dict[str, Any], kit: bool) -> str:
    """Sets one key; what kind of edit it was."""
    known = list(keys(data))
    path: Path = rng.choice(known)[0] if known and rng.random() < 0.8 else ()
    if not path or rng.random() < 0.4:
        path = (*path, *(rng.choice(NAMES) + "_new" for _each in range(rng.randint(1, 2))))
    try:
        old = at(data, path)
    except (KeyError, TypeError):
        old = None
    value = some_value(rng)
    if isinstance(old, list) and rng.random() < 0.8:
        value = changed(rng, old)
    given = from_reader(value)
    toml = Toml(made.text)
    if not fits(made, data, path, value):
        with pytest.raises(TomlError):
            toml.set(path, given)
        assert toml.text() == made.text
        return "refused"
    toml.set(path, given)
    wanted = copy.deepcopy(data)
    merged(wanted, path, value)
    judge(toml.text(), plain(wanted), kit)
    assert plain(toml.data) == plain(wanted)
    if plain(wanted) == plain(data):
        assert toml.text() == made.text
        return "equal"
    start, end = holder(made, path)
    if end:
        assert inside(made.text, toml.text(), start, end)
        return "changed"
    if old is None:
        assert only_more(made.text, toml.text())
        return "added"
    return "merged"


def from_reader(value: Any) -> Any:
    """Dates of a reader as our own kind."""
    if isinstance(value, list):
        return [from_reader(one) for one in value]
    if isinstance(value, dict):
        return {name: from_reader(one) for name, one in value.items()}
    return Moment(value.isoformat()) if hasattr(value, "isoformat") else value


def edit_same(rng: random.Random, made: Document, data: dict[str, Any], kit: bool) -> str:
    """Sets a key, or the whole document, to what it is."""
    toml = Toml(made.text)
    for path, _value in [*keys(data)]:
        toml.set(path, at(toml.data, path))
        assert toml.text() == made.text
    return "same"


def edit_delete(rng: random.Random, made: Document, data: dict[str, Any], kit: bool) -> str:
    known = [path for path, _value in keys(data)]
    if not known:
        return "empty"
    path = rng.choice(known)
    toml = Toml(made.text)
    assert toml.delete((*path, "not there")) is False
    assert toml.text() == made.text
    assert toml.delete(path) is True
    wanted = copy.deepcopy(data)
    del at(wanted, path[:-1])[path[-1]]
    new = plain(read(toml.text()))
    # Tables that were only named on the way are gone with their last key.
    for number in range(len(path) - 1, 0, -1):
        if new == plain(wanted) or at(wanted, path[:number]):
            break
        del at(wanted, path[: number - 1])[path[number - 1]]
    judge(toml.text(), plain(wanted), kit)
    start, end = holder(made, path)
    if made.statements.get(path):
        left = made.text[:start] + made.text[end:]
        assert toml.text() in (left, re.sub(r"\r?\n\Z", "", left))
        return "deleted"
    if end:
        assert inside(made.text, toml.text(), start, end)
        return "deleted in braces"
    gone = [made.statements[one] for one in made.statements if one[: len(path)] == path]
    gone += [(first, last) for where, first, last in made.sections if where[: len(path)] == path]
    kept, place = "", 0
    for first, last in sorted(gone):
        kept, place = kept + made.text[place : max(first, place)], max(last, place)
    kept += made.text[place:]
    assert [line for line in toml.text().splitlines() if line.strip()] == [
        line for line in kept.splitlines() if line.strip()
    ]
    return "deleted table"


def edits(seed: int, kit: bool) -> str:
    rng = random.Random(f"edit {seed}")
    made = document(seed)
    data = read(made.text)
    assert plain(parse(made.text)) == plain(data)
    edit = rng.choice((edit_set, edit_set, edit_set, edit_delete, edit_delete, edit_same))
    return edit(rng, made, data, kit)


def prove_edits(seeds: range, kit_every: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        try:
            kind = edits(seed, seed % kit_every == 0)
        except Exception as error:
            raise AssertionError(f"document {seed}") from error
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def attempt(text: str) -> tuple[Toml | None, TomlError]:
    try:
        return Toml(text), TomlError(0, "")
    except TomlError as error:
        return None, error


def prove_broken(seeds: range) -> tuple[int, int]:
    """How many were refused and how many read; each as tomllib does it, in little time."""
    refused = good = 0
    for seed in seeds:
        text = broken(random.Random(f"broken {seed}"), document(seed).text)
        try:
            wanted = plain(read(text))
        except ValueError:
            wanted = None
        began = time.process_time()
        toml, error = attempt(text)
        if toml:
            assert plain(toml.data) == wanted, seed
            good += 1
        else:
            assert wanted is None or "64 bits" in str(error), (seed, error)  # Python's numbers have no end
            assert 1 <= error.line <= text.count("\n") + 1
            assert str(error).startswith(f"line {error.line}: ")
            assert len(str(error)) < 200
            refused += 1
        assert time.process_time() - began < 2
    return refused, good


def test_a_sample_of_edited_documents_holds_the_change_and_nothing_else() -> None:
    counts = prove_edits(range(700), 10)
    assert sum(counts.values()) == 700
    assert all(
        counts.get(kind, 0) > 10 for kind in ("changed", "added", "deleted", "deleted table", "refused", "same")
    ), counts


def test_a_sample_of_broken_documents_is_refused_with_the_line() -> None:
    refused, good = prove_broken(range(1000))
    assert refused + good == 1000
    assert refused > 600


@pytest.mark.long
def test_10000_edited_documents_hold_the_change_and_nothing_else() -> None:
    STUMBLED.clear()
    counts = prove_edits(range(10_000), 1)
    assert len(STUMBLED) < 20
    assert sum(counts.values()) == 10_000
    assert counts["refused"] < 2_000, counts


@pytest.mark.long
def test_10000_broken_documents_are_refused_with_the_line() -> None:
    seed = refused = 0
    while refused < 10_000:
        refused += prove_broken(range(seed, seed + 100))[0]
        seed += 100
    assert refused >= 10_000
    assert seed < 20_000


def test_a_new_document_says_what_it_was_made_from() -> None:
    for seed in range(300):
        rng = random.Random(f"dumps {seed}")
        data = {rng.choice(NAMES): some_value(rng) for _each in range(rng.randint(0, 5))}
        text = dumps(data)
        assert plain(read(text)) == plain(parse(text)) == plain(data), text
