# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layouts and mig-parted files are read strictly, resolved on a GPU's profiles, and written back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu import _mig_parted as parted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._board import Gpu
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._geometry import BOARDS, board_of, corrected
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._layout import assign, read_layout
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._names import (
    ATTRIBUTES,
    BadName,
    computed_name,
    gigabytes,
    parse,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._picture import after, before
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._planner import Refused, plan
from ansible_collections.gpufleet.nvidia.plugins.module_utils._gpu._resolve import find_profile, resolve
from ansible_collections.gpufleet.nvidia.plugins.module_utils._operands._mig_configs import layouts

from .boards import A30, A100, H200, RTX, existing, wanted

A100_GPU = Gpu(0, "GPU-a", "00000000:3B:00.0", "NVIDIA A100-SXM4-40GB", 0x20B010DE, 0x134F10DE)
T4_GPU = Gpu(1, "GPU-t", "00000000:5E:00.0", "Tesla T4", 0x1EB810DE, 0x12A210DE)
CAPABLE = {"GPU-a": True, "GPU-b": True, "GPU-t": False}


def read(text: str, label: str = ""):
    return parted.read_config(yaml.safe_load(text), label)


def one(entry: str):
    return read(f"version: v1\nmig-configs: {{a: [{entry}]}}")


def said(findings, severity="error"):
    return " | ".join(f.sentence() for f in findings if f.severity == severity)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("MC-05")
@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1g.5gb", "1g.5gb"),
        ("1c.1g.5gb", "1g.5gb"),
        ("2c.3g.20gb", "2c.3g.20gb"),
        ("1g.5gb+me", "1g.5gb+me"),
        ("1g.24gb+me.all", "1g.24gb+me.all"),
        ("1g.24gb-me", "1g.24gb-me"),
        ("1g.5gb+a,b", "1g.5gb+a,b"),
    ],
)
def test_a_profiles_name_is_read_and_printed(text, printed):
    assert str(parse(text)) == printed


@pytest.mark.rows("MC-05")
@pytest.mark.parametrize(
    "text",
    [
        *("1g5gb", "g.5gb", "1g.5gb+", "1g.5gb+me,me", "1g.5gb+me-gfx", "1g.5gb+1me", "1g.5gb+.me", "1 g.5gb"),
        *("1g.5gb\n", "1g.5gb+me.", "\N{ARABIC-INDIC DIGIT ONE}g.5gb", "", 5, None, "1g." + "9" * 200 + "gb"),
    ],
)
def test_what_is_no_profiles_name_is_refused(text):
    with pytest.raises(BadName, match=r"name of a MIG profile|twice"):
        parse(text)


@given(st.text(alphabet="0123456789cgb.+-me,al", max_size=20))
def test_a_name_that_is_read_prints_as_one_that_reads_the_same(text):
    try:
        name = parse(text)
    except BadName:
        return
    assert parse(str(name)) == name


@pytest.mark.rows("MC-06")
def test_gigabytes_are_those_of_the_drivers_names():
    total = 150754820096  # an H200
    for profile in H200:
        assert computed_name(profile.index, profile.slices, profile.memory, total) == profile.name
    assert [gigabytes(m, total) for m in (16384, 33280, 71424, 143360)] == [18, 35, 71, 141]


@pytest.mark.rows("MC-07")
def test_each_index_has_its_attributes():
    assert {ATTRIBUTES[index] for index in (7, 8)} == {"+me"}
    assert (ATTRIBUTES[13], ATTRIBUTES[15], ATTRIBUTES[17]) == ("-me", "+me.all", "+gfx")
    assert computed_name(99, 1, 1024, 8 << 30) == "1g.1gb"


@pytest.mark.rows("MC-09")
def test_a_name_that_another_driver_rounds_differently_is_found_with_a_warning():
    profiles = [replace(p, name="3g.39gb" if p.slices == 3 else p.name) for p in BOARDS["A100 80GB"][1]]
    profile, sentence = find_profile(parse("3g.40gb"), profiles)
    assert profile.name == "3g.39gb"
    assert "taken as 3g.39gb" in sentence
    assert find_profile(parse("1g.10gb"), profiles)[1] == ""
    # One slice has two sizes: the number tells which.
    assert find_profile(parse("1g.20gb"), profiles)[0].index == 9
    with pytest.raises(Refused, match=r"no profile 1g\.15gb; this GPU has 1g\.10gb, 1g\.10gb"):
        find_profile(parse("1g.15gb"), profiles)
    with pytest.raises(Refused, match=r"no profile 3g\.45gb"):
        find_profile(parse("3g.45gb"), profiles)


# --- mig-parted -------------------------------------------------------------------------------------------------------


@pytest.mark.rows("MC-01")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty and has no label to choose"),  # P1
        ("version: v1", "has 0 labels, and none is chosen"),  # P2: valid, and choosing fails
        ("mig-configs: {a: [{devices: all, mig-enabled: false}]}", "has no version"),  # P3
        ("version: v2", "only v1 is known"),  # P4
        ("version: v1\nmig-configs: {}", "has no labels"),
        ("version: v1\nmig-configs: {a: []}", "is no list of entries, or has none"),
        ("version: v1\nmore: 1", "config.more: is not known"),
        ("[1]", "a mig-parted file is a mapping"),
    ],
)
def test_files_that_mig_parted_refuses_are_refused(text, problem):
    _entries, findings = read(text)
    assert problem in said(findings)


@pytest.mark.rows("MC-02", "MC-03")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{devices: 0, mig-enabled: false}", "it is all or a list of numbers"),  # P5
        ('{devices: "0", mig-enabled: false}', "it is all or a list of numbers"),  # P5
        ("{devices: [0, true], mig-enabled: false}", "it is all or a list of numbers"),
        ("{mig-enabled: false}", "devices: is None"),
        ("{devices: all}", "mig-enabled: is None; it must be there"),
        ("{devices: [0, 1], mig-enabled: true}", "is missing, although mig-enabled is true"),  # P6
        ("{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}", "although mig-enabled is false"),  # P8
        ("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}", "how many instances, from 0 on"),  # P9
        ("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}", "has only counts of 0"),  # P9
        ("{devices: all, mig-enabled: true, mig-devices: {1g5gb: 1}}", "no name of a MIG profile"),
        ("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1.5}}", "how many instances"),
        ("{devices: all, mig-enabled: true, mig-devices: {}, x: 1}", "[0].x: is not known"),
    ],
)
def test_entries_that_mig_parted_refuses_are_refused_with_the_path(entry, problem):
    _entries, findings = one(entry)
    assert problem in said(findings)
    assert "config.mig-configs.a[0]" in said(findings)


@pytest.mark.rows("MC-03")
def test_no_instances_and_counts_of_zero_are_read():
    (entry,), findings = one("{devices: [], mig-enabled: true, mig-devices: {}}")  # P7
    assert (entry.gpus, entry.enabled, entry.wishes, findings) == ((), True, (), [])
    (entry,), findings = one("{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0, 2g.10gb: 1}}")  # P10
    assert [(str(w.name), w.count) for w in entry.wishes] == [("2g.10gb", 1)]
    assert findings == []


@pytest.mark.rows("MC-08")
def test_a_label_is_chosen_by_name_or_because_it_is_the_only_one():
    text = (
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false}], b: [{devices: [1], mig-enabled: false}]}"
    )
    assert read(text, "b")[0][0].gpus == (1,)
    assert "has no label c. There are a, b." in said(read(text, "c")[1])
    assert "has 2 labels, and none is chosen. Set name. There are a, b." in said(read(text)[1])
    assert one("{devices: all, mig-enabled: false}")[0][0].enabled is False


@pytest.mark.rows("MC-04")
@pytest.mark.parametrize(
    ("pci", "matches"),
    [
        ("0x20B010DE", True),  # P13
        ("0x20B010DE:0x134F10DE", True),
        ("0x20B010DE:0x111110DE", False),
        ("548409566", True),  # YAML reads 0x20B010DE without quotes as a number
        ('["0x233010DE", "0x20b010de"]', True),
        ('""', True),
        ("[]", True),
        ('"A100"', False),  # P14
    ],
)
def test_a_filter_matches_pci_ids_and_says_when_it_is_none(pci, matches):
    entries, findings = one(f"{{devices: all, device-filter: {pci}, mig-enabled: true, mig-devices: {{}}}}")
    assert (A100_GPU.uuid in assign(entries, [A100_GPU], CAPABLE).entries) == matches
    assert ("matches no GPU; ids look like" in said(findings, "warning")) == ("A100" in pci)
    assert said(findings) == ""


@pytest.mark.rows("MC-12")
def test_shipped_layouts_are_read_and_fit_the_boards_that_they_are_for():
    document = {"version": "v1", "mig-configs": layouts()}
    fitted = 0
    for label in layouts():
        entries, findings = parted.read_config(document, label)
        assert findings == [], label
        for ids, profiles in BOARDS.values():
            gpu = replace(A100_GPU, device_id=int(f"{ids.split()[0]}10DE", 16))
            for entry in assign(entries, [gpu], {gpu.uuid: True}).entries.values():
                if all(any(p.name == w.name.instance for p in profiles) for w in entry.wishes):
                    items = resolve(entry.wishes, profiles).items
                    if label == "all-balanced" or entry.filters:
                        plan(profiles, [], items, {})
                        fitted += 1
    assert fitted > 15
    assert board_of(0x233510DE) == "H200"
    assert board_of(0x1EB810DE) is None


# --- users' layouts ---------------------------------------------------------------------------------------------------


@pytest.mark.rows("ML-05", "ML-06")
def test_a_layout_names_gpus_counts_slots_and_parts():
    entries, findings = read_layout(
        [
            {"gpus": [0, "GPU-b"], "profiles": {"1g.5gb": 2, "1c.2g.10gb": 2}},
            {"gpus": "0000:3b:00.0", "instances": [{"profile": "3g.20gb", "start": 4, "compute": [1, 2]}]},
            {"product": "a100", "pci_ids": ["0x20B010DE"], "enabled": False},
        ]
    )
    assert findings == []
    assert [entry.gpus for entry in entries] == [(0, "GPU-b"), ("0000:3b:00.0",), None]
    items = resolve([*entries[0].wishes, *entries[1].wishes], A100).items
    assert [(i.profile.name, i.compute, i.start) for i in items] == [
        ("1g.5gb", (1,), None),
        ("1g.5gb", (1,), None),
        ("3g.20gb", (2, 1), 4),
        ("2g.10gb", (1, 1), None),
    ]
    assert assign(entries[1:2], [A100_GPU, T4_GPU], CAPABLE).entries == {"GPU-a": entries[1]}
    assert assign(entries[2:], [A100_GPU, T4_GPU], CAPABLE).entries == {"GPU-a": entries[2]}


BAD_LAYOUTS = [
    ({"gpus": "all"}, "a layout is a list of entries"),
    ([5], "layout[0]: is a int; an entry is a mapping"),
    ([{"profile": 1}], "layout[0].profile: is not known"),
    ([{"gpus": [-1]}], "has -1; a GPU is an index"),
    ([{"gpus": ["first"]}], "has 'first'; a GPU is an index"),
    ([{"gpus": [True]}], "has True; a GPU is an index"),
    ([{"enabled": "maybe"}], "layout[0].enabled: is 'maybe'"),
    ([{"enabled": False, "profiles": {"1g.5gb": 1}}], "asks for instances with enabled: false"),
    ([{"profiles": {"1g5gb": 1}}], "layout[0].profiles.1g5gb: '1g5gb' is no name"),
    ([{"profiles": {"1g.5gb": "two"}}], "layout[0].profiles.1g.5gb: is 'two'"),
    ([{"profiles": ["1g.5gb"]}], "it maps profiles to counts"),
    ([{"pci_ids": ["A100"]}], "'A100' is no PCI id"),
    ([{"product": ["H100"]}], "it is a part of the product's name"),
    ([{"instances": {"profile": "1g.5gb"}}], "it is a list of instances"),
    ([{"instances": ["1g.5gb"]}], "an instance is a mapping with a profile"),
    ([{"instances": [{"profile": "1g.5gb", "slot": 1}]}], "instances[0].slot: is not known"),
    ([{"instances": [{"profile": "1g.5gb", "start": "x"}]}], "is the number of a memory slot"),
    ([{"instances": [{"profile": "1g.5gb", "start": 0, "count": 2}]}], "asks for 2 instances at slot 0"),
    ([{"instances": [{"profile": "3g.20gb", "compute": "2c"}]}], "lists the slices of each compute instance"),
]


@pytest.mark.parametrize(("layout", "problem"), BAD_LAYOUTS)
def test_a_layout_with_a_mistake_is_refused_with_its_path(layout, problem):
    assert problem in said(read_layout(layout)[1])


def test_all_mistakes_are_told_at_once():
    findings = read_layout([{"gpus": ["x"], "profiles": {"y": 1, "1g.5gb": -2}}, {"z": 1}])[1]
    assert len(findings) == 5


def test_unknown_gpus_and_contradictions_are_refused():
    entries, _none = read_layout(
        [
            {"gpus": "all", "profiles": {"1g.5gb": 1, "2g.10gb": 1}},
            {"gpus": [0], "profiles": {"2g.10gb": 1, "1g.5gb": 1}},
            {"gpus": [0], "profiles": {"1g.5gb": 2}},
            {"gpus": [7, "GPU-none"], "profiles": {}},
        ]
    )
    findings = assign(entries, [A100_GPU], CAPABLE).findings
    assert "layout[2]: wants something else of GPU 0 than layout[0] does" in said(findings)
    assert "layout[3]: names GPU 7, which is not there. There are 0." in said(findings)
    assert "layout[3]: names GPU GPU-none, which is not there. There are 0." in said(findings)
    assert len([f for f in findings if f.severity == "error"]) == 3


@pytest.mark.rows("MM-07")
def test_a_gpu_without_mig_is_left_alone_unless_it_is_named():
    for gpus, error, info in (("all", "", "cannot do MIG and is left alone"), ([1], "Tesla T4) cannot do MIG", "")):
        entries, _none = read_layout([{"gpus": gpus, "profiles": {"1g.5gb": 1}}])
        made = assign(entries, [A100_GPU, T4_GPU], CAPABLE)
        assert error in said(made.findings)
        assert info in said(made.findings, "info")
        assert set(made.entries) == ({"GPU-a"} if gpus == "all" else set())
    entries, _none = read_layout([{"gpus": [1], "enabled": False}])  # nothing to switch off
    assert assign(entries, [A100_GPU, T4_GPU], CAPABLE).findings == ()


@pytest.mark.rows("ML-15")
def test_a_profile_that_the_gpu_has_not_is_refused_with_those_that_it_has():
    entries, _none = read_layout([{"profiles": {"9g.99gb": 1}}])
    with pytest.raises(Refused, match=r"no profile 9g\.99gb; this GPU has 1g\.5gb, 1g\.5gb\+me"):
        resolve(entries[0].wishes, A100)
    entries, _none = read_layout([{"instances": [{"profile": "3g.20gb", "compute": [2, 2]}]}])
    with pytest.raises(Refused, match=r"compute instances 2c \+ 2c do not fit into 3g\.20gb"):
        resolve(entries[0].wishes, A100)


# --- writing ----------------------------------------------------------------------------------------------------------


def board(index: int, device: int = 0x20B0) -> Gpu:
    return replace(A100_GPU, index=index, uuid=f"GPU-{index}", device_id=device << 16 | 0x10DE)


@pytest.mark.rows("MC-10")
def test_equal_gpus_share_an_entry_and_others_have_their_own():
    alike = [parted.Current(board(n), True, ("1g.5gb",) * 7) for n in range(8)]
    assert parted.export(alike)["mig-configs"]["current"] == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    ]
    alike[3] = parted.Current(board(3), False)
    assert parted.export(alike, "now")["mig-configs"]["now"] == [
        {"devices": [0, 1, 2, 4, 5, 6, 7], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [3], "mig-enabled": False, "mig-devices": {}},
    ]


@pytest.mark.rows("MC-10", "ML-17")
def test_different_products_are_told_apart_by_their_ids():
    found = [parted.Current(board(0), True, ("1g.5gb", "1c.2g.10gb")), parted.Current(board(1, 0x20B7), True, ())]
    text = parted.as_yaml(parted.export(found))
    entries = yaml.safe_load(text)["mig-configs"]["current"]
    assert [entry["device-filter"] for entry in entries] == ["0x20B010DE", "0x20B710DE"]
    assert [entry["devices"] for entry in entries] == ["all", "all"]
    read_back, findings = parted.read_config(yaml.safe_load(text))
    assert findings == []
    made = assign(read_back, [board(0), board(1, 0x20B7)], {"GPU-0": True, "GPU-1": True}).entries
    assert [str(wish.name) for wish in made["GPU-0"].wishes] == ["1c.2g.10gb", "1g.5gb"]
    assert made["GPU-1"].wishes == ()


@pytest.mark.rows("MC-11")
def test_layouts_are_made_from_the_hardware():
    eighty = parted.generate({0x20B210DE: BOARDS["A100 80GB"][1]})["mig-configs"]
    balanced = {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
    assert eighty["all-balanced"] == [{"devices": "all", "mig-enabled": True, "mig-devices": balanced}]  # R12
    assert eighty["all-1g.10gb.me"][0]["mig-devices"] == {"1g.10gb+me": 1}
    pro = parted.generate({0x2BB510DE: RTX})["mig-configs"]  # R13
    assert pro["all-1g.24gb-me"][0]["mig-devices"] == {"1g.24gb-me": 4}
    assert pro["all-1g.24gb.me.all"][0]["mig-devices"] == {"1g.24gb+me.all": 1}
    assert pro["all-balanced"][0]["mig-devices"] == {"1g.24gb": 2, "2g.48gb": 1}
    both = parted.generate({0x20B010DE: A100, 0x20B210DE: BOARDS["A100 80GB"][1]})["mig-configs"]  # R14
    assert [(e["device-filter"], e["mig-devices"]) for e in both["all-1g.10gb"]] == [
        (["0x20B010DE"], {"1g.10gb": 4}),
        (["0x20B210DE"], {"1g.10gb": 7}),
    ]


@pytest.mark.rows("MC-11")
def test_the_counts_of_an_a30_are_put_right_and_a_silent_driver_is_filled_in():
    wrong = [replace(profile, count=profile.count + 3) for profile in A30]
    assert [p.count for p in corrected(0x20B710DE, wrong)] == [4, 1, 2, 1, 1]
    assert corrected(0x20B010DE, []) == A100
    assert corrected(0x1EB810DE, []) == ()
    assert corrected(0x233510DE, wrong) == tuple(wrong)


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("ML-12")
def test_slices_are_shown_as_one_line():
    old = existing("1g@0 1g@1 3g@4")
    assert before(A100, old, [2]) == "[1g][1g*][------][3g------------]"
    assert after(A100, plan(A100, old, wanted("3g 2g 1g"), {})) == "[1g][--][2g----][3g------------]"
    assert before(A100, []) == "[------------------------------]"
    parts = resolve(read_layout([{"profiles": {"1c.3g.20gb": 1, "2c.3g.20gb": 1, "1g.5gb+me": 1}}])[0][0].wishes, A100)
    assert after(A100, plan(A100, [], parts.items, {})) == "[3g:2c+1c------][1g+me][----------]"
    assert before(A30, existing("2g@2", A30)) == "[------][2g----]"
