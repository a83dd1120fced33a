# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan keeps what can stay, pins what is busy, and says why something never fits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import ComputeInstance, ComputeProfile
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._geometry import compute_of
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._planner import (
    Item,
    Plan,
    Refused,
    compute_profile,
    group_compute,
    place_compute,
    plan,
)

from . import boards
from .boards import A30, A100, H200, PLAIN, RTX, existing, full, instance, short, spots, wanted


def planned(old: str, new: str, profiles=A100, pins=None) -> Plan:
    return plan(profiles, existing(old, profiles), wanted(new, profiles), pins or {})


def test_the_table_has_as_many_layouts_as_the_boards():
    assert len(boards.layouts(PLAIN)) == 723
    assert len(boards.by_multiset(PLAIN)) == 78
    assert len(boards.layouts(tuple(p for p in PLAIN if p.index != 9))) == 298
    assert len(boards.layouts(tuple(p for p in A30 if "+" not in p.name))) == 26


EXAMPLES = [
    # existing, wanted, layout afterwards, what stays
    ("1g@0 1g@1 3g@4", "3g 2g 1g", "1g@0 2g@2 3g@4", "1g@0 3g@4"),
    ("1g@0 1g@1 1g@2 1g@3 1g@4 1g@5 1g@6", "3g 1g*3", "1g@0 1g@1 1g@2 3g@4", "1g@0 1g@1 1g@2"),
    ("1g@0 1g@1 1g@5", "3g 1g*3", "1g@0 1g@1 1g@2 3g@4", "1g@0 1g@1"),
    ("1g@2 1g@5", "3g 1g*2", "1g@0 1g@2 3g@4", "1g@2"),
    ("1g@0 1g@4", "3g", "3g@0", ""),
    ("3g@4", "4g 3g", "4g@0 3g@4", "3g@4"),
    ("3g@0", "4g 3g", "4g@0 3g@4", ""),
    ("2g@0 2g@2 2g@4 1g@6", "2g*2 3g", "2g@0 2g@2 3g@4", "2g@0 2g@2"),
    ("2g@0 2g@4", "2g*2 3g", "2g@0 2g@2 3g@4", "2g@0"),
    ("2g@2 1g@0 1g@1", "4g 2g 1g", "4g@0 2g@4 1g@6", ""),
    ("1gD@6", "2g*3 1gD", "2g@0 2g@2 2g@4 1gD@6", "1gD@6"),
    ("1g@6", "1g*7", "1g@0 1g@1 1g@2 1g@3 1g@4 1g@5 1g@6", "1g@6"),
]


@pytest.mark.rows("ML-03", "P089")
@pytest.mark.parametrize(("old", "new", "after", "stays"), EXAMPLES)
def test_the_most_that_can_stay_stays(old, new, after, stays):
    made = planned(old, new)
    expected = existing(after)
    assert spots(made) == [f"{short_name(e)}@{e.start}" for e in sorted(expected, key=lambda e: e.start)]
    assert [(k.instance.profile_id, k.instance.start) for k in made.keep] == [
        (e.profile_id, e.start) for e in existing(stays)
    ]
    assert {e.id for e in made.destroy} == {e.id for e in existing(old)} - {k.instance.id for k in made.keep}


def short_name(found) -> str:
    return next(profile.name for profile in A100 if profile.id == found.profile_id)


@pytest.mark.rows("ML-04", "S20")
def test_each_half_holds_a_busy_instance_so_one_must_be_drained():
    pins = {1: frozenset(), 2: frozenset()}
    with pytest.raises(Refused) as refused:
        planned("1g@0 1g@4", "3g 1g*2", pins=pins)
    assert len(refused.value.drain) == 1
    with pytest.raises(Refused) as refused:
        planned("1g@0 1g@4", "3g*2 1g", pins=pins)
    assert refused.value.drain == ()  # never, busy or not


@pytest.mark.rows("ML-04")
def test_a_busy_instance_stays_although_moving_it_would_save_a_larger_one():
    assert planned("1g@0 3g@4", "4g 2g 1g").destroy  # 1g@0 has to give way
    with pytest.raises(Refused, match="busy") as refused:
        planned("1g@0 3g@4", "4g 2g 1g", pins={1: frozenset()})
    assert [each.id for each in refused.value.drain] == [1]
    assert [k.instance.id for k in planned("1g@2 1g@5", "3g 1g").keep] == [2]
    pinned = planned("1g@2 1g@5", "3g 1g", pins={1: frozenset()})
    assert [k.instance.id for k in pinned.keep] == [1]
    assert spots(pinned) == ["1g.5gb@2", "3g.20gb@4"]


FITS = [
    ("LY1", A100, "1g*7", True),
    ("LY1", A100, "1g*8", "at most 7"),
    ("LY2", A100, "1g*3 2g*2", True),
    ("LY3", A100, "1g*4 2g*2", "no way to place"),
    ("LY4", A100, "2g*3 1g", ["2g.10gb@0", "2g.10gb@2", "2g.10gb@4", "1g.5gb@6"]),
    ("LY5", A100, "3g*2", ["3g.20gb@0", "3g.20gb@4"]),
    ("LY5", A100, "3g*2 1g", "9 slots"),
    ("LY6", A100, "4g 3g", ["4g.20gb@0", "3g.20gb@4"]),
    ("LY6", A100, "4g 1g*4", "no way to place"),
    ("LY7", A100, "3g 2g 1g*2", ["1g.5gb@0", "1g.5gb@1", "2g.10gb@2", "3g.20gb@4"]),
    ("LY8", A100, "1gD*4", ["1g.10gb@0", "1g.10gb@2", "1g.10gb@4", "1g.10gb@6"]),
    ("LY8", A100, "1gD*3 2g", True),
    ("LY9", A100, "1g+me*2", "at most 1"),
    ("LY9", A100, "1g+me 1g*2 2g*2", True),
    ("LY10", A30, "2g 1g*2", True),
    ("LY10", A30, "2g*2 1g", "5 slots"),
    ("LY11", RTX, "1g+me.all 1g*3", "engines"),
    ("LY11", RTX, "1g+me.all 1g-me*3", True),
]


@pytest.mark.rows("ML-02", "ML-08", "ML-09")
@pytest.mark.parametrize(("case", "profiles", "new", "answer"), FITS)
def test_what_fits_is_placed_and_what_does_not_is_refused_with_the_reason(case, profiles, new, answer):
    if isinstance(answer, str):
        with pytest.raises(Refused, match=answer) as refused:
            planned("", new, profiles)
        assert refused.value.drain == ()
        return
    made = planned("", new, profiles)
    if answer is not True:
        assert sorted(spots(made)) == sorted(answer), case
    assert len(made.create) == len(wanted(new, profiles))


@pytest.mark.rows("ML-09")
def test_a_board_of_two_slots_is_planned():
    two = [
        p.__class__(**{**p.__dict__, "count": count, "starts": starts})
        for p, count, starts in ((short("1g", RTX), 2, (0, 1)), (short("2g", RTX), 1, (0,)))
    ]
    assert spots(plan(two, [], [full(two[0])] * 2, {})) == ["1g.24gb@0", "1g.24gb@1"]
    with pytest.raises(Refused):
        plan(two, [], [full(two[0]), full(two[1])], {})


@pytest.mark.rows("ML-05")
def test_a_fixed_slot_is_honoured_or_refused():
    assert spots(planned("", "1g@5 2g 1g")) == ["1g.5gb@0", "2g.10gb@2", "1g.5gb@5"]
    assert [k.instance.start for k in planned("1g@0", "1g@3").keep] == []
    with pytest.raises(Refused, match="cannot begin at slot 3: allowed are 0, 2, 4"):
        planned("", "2g@3")
    with pytest.raises(Refused, match="no way"):
        planned("", "2g@0 1g@1")


# --- compute instances ------------------------------------------------------------------------------------------------


@pytest.mark.rows("ML-06")
@pytest.mark.parametrize(
    ("name", "parts", "bins"),
    [
        ("2g", [1, 1], [[1, 1]]),  # LY12
        ("3g", [1, 2], [[2, 1]]),  # LY13
        ("3g", [1, 1, 1], [[1, 1, 1]]),
        ("1g", [1, 1], [[1], [1]]),
        ("3g", [2, 2], [[2], [2]]),
        ("7g", [4, 3], [[4, 3]]),
    ],
)
def test_parts_are_packed_into_as_few_instances_as_they_need(name, parts, bins):
    assert group_compute(short(name), parts) == bins


def test_a_part_that_the_instance_has_not_is_refused():
    with pytest.raises(Refused, match="no compute instance of 3 slices"):
        group_compute(short("4g"), [3])


@pytest.mark.rows("ML-06")
def test_compute_instances_change_inside_an_instance_that_stays():
    three = short("3g")
    old = [instance(three, 4, 1, [1, 1, 1])]
    made = plan(A100, old, [Item(three, (2, 1))], {})
    (kept,) = made.keep
    assert not made.destroy
    assert not made.create
    assert [part.id for part in kept.compute.keep] == [2]
    assert [part.id for part in kept.compute.destroy] == [0, 1]
    assert [(profile.slices, start) for profile, start in kept.compute.create] == [(2, 0)]


@pytest.mark.rows("ML-06", "ML-04")
def test_a_busy_compute_instance_stays_and_its_neighbours_change():
    three = short("3g")
    old = [instance(three, 4, 1, [1, 1, 1])]
    with pytest.raises(Refused) as refused:
        plan(A100, old, [Item(three, (2, 1))], {1: frozenset([0])})
    assert [each.id for each in refused.value.drain] == [1]
    kept = plan(A100, old, [Item(three, (2, 1))], {1: frozenset([2])}).keep[0]
    assert [part.id for part in kept.compute.keep] == [2]
    # One of two equal parts is wanted: the busy one stays, wherever it is.
    two = [instance(short("2g"), 0, 1, [1, 1])]
    kept = plan(A100, two, [Item(short("2g"), (1,))], {1: frozenset([1])}).keep[0]
    assert [part.id for part in kept.compute.keep] == [1]


@pytest.mark.rows("ML-06")
def test_equal_instances_are_paired_so_that_most_compute_instances_stay():
    two = short("2g")
    old = [instance(two, 0, 1, [2]), instance(two, 2, 2, [1, 1])]
    made = plan(A100, old, [Item(two, (1, 1)), Item(two, (2,))], {})
    assert made.empty


@pytest.mark.rows("ML-01")
def test_an_instance_without_compute_instance_is_completed_or_goes():
    old = [instance(short("1g"), 0, 1, [])]
    completed = plan(A100, old, wanted("1g"), {})
    assert len(completed.keep[0].compute.create) == 1
    assert [each.id for each in plan(A100, old, [], {}).destroy] == [1]


@pytest.mark.rows("ML-07")
def test_the_full_width_compute_instance_is_the_one_with_most_multiprocessors():
    hopper = [ComputeProfile(0, 0, 1, 1, 16, (0,), 1), ComputeProfile(7, 7, 1, 1, 26, (0,), 1)]
    assert compute_profile(hopper, 1).index == 7
    assert compute_profile(hopper, 2) is None
    double = short("1gD", H200)
    old = instance(double, 0, 1)
    lesser = old.__class__(**{**old.__dict__, "compute_profiles": tuple(hopper)})
    changed = plan(H200, [lesser], [full(double)], {}).keep[0].compute
    assert [part.id for part in changed.destroy] == [0]
    assert [profile.index for profile, _start in changed.create] == [7]


@pytest.mark.rows("ML-06")
def test_where_the_driver_places_compute_instances_they_are_counted():
    unplaced = tuple(ComputeProfile(n, n, n + 1, 3 - n, 14 * (n + 1), (), n + 1) for n in range(3))
    old = instance(short("3g"), 0, 1, [1, 2])
    blind = old.__class__(**{**old.__dict__, "compute_profiles": unplaced})
    change = plan(A100, [blind], [Item(short("3g"), (1, 1))], {}).keep[0].compute
    assert len(change.keep) == 1
    assert len(change.destroy) == 1
    assert [start for _profile, start in change.create] == [-1]


# --- properties -------------------------------------------------------------------------------------------------------


def carried_out(made: Plan) -> list:
    """The instances after a plan: what stays with its id, what is new with new ones."""
    now = []
    for kept in made.keep:
        start = kept.instance
        inside = list(kept.compute.keep)
        inside += [
            ComputeInstance(100 + n, profile.id, profile.slices, slot, profile.size)
            for n, (profile, slot) in enumerate(kept.compute.create)
        ]
        now.append(replace(start, compute=tuple(sorted(inside, key=lambda part: part.start))))
    for n, new in enumerate(made.create):
        profiles = tuple(compute_of(new.item.profile))
        places = place_compute(profiles, new.item.profile.slices, new.item.compute)
        parts = [ComputeInstance(m, p.id, p.slices, slot, p.size) for m, (p, slot) in enumerate(places)]
        made_now = instance(new.item.profile, new.start, 200 + n)
        now.append(replace(made_now, compute=tuple(parts)))
    return now


BOARDS_WITH_ALL = (A100, H200, A30, RTX)
INSIDE = {
    1: [(1,), ()],
    2: [(2,), (1, 1), (1,)],
    3: [(3,), (2, 1), (1, 1, 1)],
    4: [(4,), (2, 2), (2, 1, 1)],
    7: [(7,), (4, 3)],
}


@st.composite
def changes(draw):
    """A board, instances on it, and items that are wanted; these fit in about half of all cases."""
    profiles = draw(st.sampled_from(BOARDS_WITH_ALL))
    layout = draw(st.sampled_from(boards.some_layouts(profiles)))
    there = [
        instance(profile, start, n, draw(st.sampled_from(INSIDE[profile.slices])))
        for n, (profile, start) in enumerate(layout)
    ]
    wish = draw(st.sampled_from(boards.some_layouts(profiles)))
    items = [Item(profile, draw(st.sampled_from(INSIDE[profile.slices]))) for profile, _start in wish]
    busy = draw(st.sets(st.sampled_from([each.id for each in there]))) if there else set()
    return profiles, there, items, {number: frozenset() for number in busy}


def planned_or_drained(profiles, there, items, pins) -> tuple:
    try:
        return plan(profiles, there, items, pins), set()
    except Refused as error:
        return None, {each.id for each in error.drain}


@pytest.mark.rows("ML-03", "ML-13", "ML-04")
@given(changes())
def test_a_carried_out_plan_is_empty_when_planned_again_and_never_touches_what_is_busy(change):
    profiles, there, items, pins = change
    made, drain = planned_or_drained(profiles, there, items, pins)
    assert drain <= set(pins)
    if made is None:
        if drain:  # without these it fits
            plan(profiles, there, items, {number: pins[number] for number in set(pins) - drain})
        return
    gone = {each.id for each in made.destroy}
    assert not gone & set(pins)
    assert all(kept.instance.id not in pins or not kept.compute.destroy for kept in made.keep)
    assert gone | {kept.instance.id for kept in made.keep} == {each.id for each in there}
    after = carried_out(made)
    slots = [slot for each in after for slot in range(each.start, each.start + each.size)]
    assert len(slots) == len(set(slots))
    assert sorted(each.profile_id for each in after) == sorted(item.profile.id for item in items)
    assert plan(profiles, after, items, {}).empty


@pytest.mark.rows("ML-13")
@given(changes())
def test_the_layout_that_is_there_needs_nothing(change):
    profiles, there, _items, pins = change
    by_id = {profile.id: profile for profile in profiles}
    same = [
        Item(by_id[each.profile_id], tuple(sorted((part.slices for part in each.compute), reverse=True)))
        for each in there
    ]
    assert plan(profiles, there, same, pins).empty


# --- against brute force ----------------------------------------------------------------------------------------------


def assert_best(old, multiset, same_kind):
    made = plan(A100, boards.as_existing(old), boards.items_of(multiset, PLAIN), {})
    assert boards.worth_of(made) == boards.best_kept(old, same_kind)


@pytest.mark.rows("ML-03")
def test_plans_are_the_best_there_are_on_a_sample_of_all_pairs():
    kinds = sorted(boards.by_multiset(PLAIN).items(), key=lambda pair: pair[0])
    chance = random.Random(5)
    for old in chance.sample(boards.layouts(PLAIN), 30):
        for multiset, same_kind in chance.sample(kinds, 26):
            assert_best(old, multiset, same_kind)


@pytest.mark.long
@pytest.mark.rows("ML-03")
def test_plans_are_the_best_there_are_on_all_pairs():
    pairs = 0
    for multiset, same_kind in boards.by_multiset(PLAIN).items():
        for old in boards.layouts(PLAIN):
            assert_best(old, multiset, same_kind)
            pairs += 1
    assert pairs == 78 * 723


@pytest.mark.rows("ML-02")
def test_a_refusal_is_right_for_every_multiset_of_four_or_fewer_kinds():
    known = {tuple(sorted(dict(key).items())) for key in boards.by_multiset(PLAIN)}
    names = {profile.name: profile for profile in PLAIN}
    chance = random.Random(7)
    refused = 0
    for _n in range(300):
        counts = {name: chance.randint(0, 3) for name in chance.sample(sorted(names), 3)}
        items = [full(names[name]) for name, many in counts.items() for _m in range(many)]
        key = tuple(sorted((name, many) for name, many in counts.items() if many))
        try:
            plan(A100, [], items, {})
            fits = True
        except Refused:
            fits = False
            refused += 1
        assert fits == (key in known)
    assert 50 < refused < 290
