# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TOML as people and tools write it: each kind of change where it belongs, and input that is none."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._toml import (
    Moment,
    Toml,
    TomlError,
    dumps,
    parse,
)
from ansible_collections.gpufleet.nvidia.tests.helpers.toml_documents import plain, read

CONTAINERD = """\
# Managed by the platform team
version = 2 # as of 1.7
imports = [
    "/etc/containerd/a.toml", # ours
    "/etc/containerd/b.toml"
]

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = 'registry.example.com/pause:3.9'
    cni = { bin_dir = "/opt/cni/bin" } # network
    # runtimes
    [plugins."io.containerd.grpc.v1.cri".containerd]
      stream.idle = "4h"

# metrics of this host
[metrics]
  address = "192.0.2.1:1338"
"""
CRI = ("plugins", "io.containerd.grpc.v1.cri")


def edited(text: str, *path: str, to: Any) -> str:
    toml = Toml(text)
    toml.set(path, to)
    assert plain(read(toml.text())) == plain(toml.data)
    return toml.text()


def test_a_value_is_replaced_in_its_place() -> None:
    assert edited(CONTAINERD, "version", to=3) == CONTAINERD.replace("version = 2 #", "version = 3 #")


def test_a_text_keeps_its_kind_of_quotes_where_it_can() -> None:
    new = edited(CONTAINERD, *CRI, "sandbox_image", to="b")
    assert new == CONTAINERD.replace("'registry.example.com/pause:3.9'", "'b'")
    assert 'sandbox_image = "it\'s"' in edited(CONTAINERD, *CRI, "sandbox_image", to="it's")


def test_a_new_key_goes_below_the_last_one_of_its_table_as_that_is_indented() -> None:
    new = edited(CONTAINERD, *CRI, "enable_cdi", to=True)
    assert new == CONTAINERD.replace("# network\n", "# network\n    enable_cdi = true\n")
    new = edited(CONTAINERD, "debug", to=False)
    assert new == CONTAINERD.replace("]\n\n[plugins]", "]\ndebug = false\n\n[plugins]")


def test_the_first_key_of_a_table_is_indented_like_those_of_others() -> None:
    new = edited(CONTAINERD, "plugins", "x", to=1)
    assert new == CONTAINERD.replace("[plugins]\n", "[plugins]\n  x = 1\n")


def test_keys_in_braces_and_dotted_keys_are_changed_where_they_stand() -> None:
    new = edited(CONTAINERD, *CRI, "cni", "conf_dir", to="/etc/cni")
    assert new == CONTAINERD.replace('bin" }', 'bin", conf_dir = "/etc/cni" }')
    new = edited(CONTAINERD, *CRI, "containerd", "stream", "busy", "most", to=5)
    assert new == CONTAINERD.replace('"4h"\n', '"4h"\n      stream.busy.most = 5\n')


def test_dotted_keys_may_add_to_a_table_that_was_named_on_the_way() -> None:
    text = "[a.b.c]\nz = 1\n[a]\nb.d = 1\n"
    assert parse(text) == {"a": {"b": {"c": {"z": 1}, "d": 1}}}
    assert edited(text, "a", "b", "e", to=2) == text + "b.e = 2\n"
    assert edited(text, "a", "b", "c", "y", to=2) == text.replace("z = 1\n", "z = 1\ny = 2\n")


def test_a_table_that_is_not_there_is_appended() -> None:
    path = (*CRI, "containerd", "runtimes", "nvidia")
    new = edited(CONTAINERD, *path, to={"options": {"BinaryName": "/usr/bin/x"}, "runtime_type": "t"})
    assert new == CONTAINERD + (
        '\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "t"\n'
        '\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "/usr/bin/x"\n'
    )
    toml = Toml(new)
    assert toml.delete(path)
    assert toml.text() == CONTAINERD


@pytest.mark.parametrize(
    "text", [CONTAINERD.replace("\n", "\r\n"), CONTAINERD.rstrip("\n"), "", "# only this", "a = 1"]
)
def test_what_was_appended_is_taken_away_again_without_a_trace(text: str) -> None:
    toml = Toml(text)
    toml.set(["new", "c.d"], {"x": [1, {"y": Moment("07:32:00")}], "z": {}})
    assert ("\r\n" in toml.text()) == ("\r\n" in text)
    assert "\n" not in toml.text().replace("\r\n", "") or "\r\n" not in text
    assert toml.delete(["new", "c.d"])
    assert toml.text() == text


def test_comments_stand_by_the_table_below_them() -> None:
    assert edited("# a\n\n# of t\n[t]\nx = 1\n# of u\n[u]\n", "new", to=1) == (
        "# a\n\nnew = 1\n\n# of t\n[t]\nx = 1\n# of u\n[u]\n"
    )
    assert edited("[t]\nx = 1\n# of u\n[u]\n", "t", "y", to=1) == "[t]\nx = 1\ny = 1\n# of u\n[u]\n"


def test_items_of_an_array_keep_their_comments() -> None:
    first, second = "/etc/containerd/a.toml", "/etc/containerd/b.toml"
    old = f'    "{first}", # ours\n    "{second}"\n'
    for items, lines in (
        ([first, second, "c"], f'    "{first}", # ours\n    "{second}",\n    "c"\n'),
        ([first, "c", second], f'    "{first}", # ours\n    "c",\n    "{second}"\n'),
        (["c", first, second], f'    "c",\n    "{first}", # ours\n    "{second}"\n'),
        ([first], f'    "{first}", # ours\n'),
        ([second], f'    "{second}"\n'),
        ([first, "c"], f'    "{first}", # ours\n    "c"\n'),
    ):
        assert edited(CONTAINERD, "imports", to=items) == CONTAINERD.replace(old, lines)
    assert edited('a = ["x", # of x\n "y"]\n', "a", to=["x"]) == 'a = ["x", # of x\n ]\n'
    assert edited("a = [1, 2,] # x\n", "a", to=[1]) == "a = [1,] # x\n"
    assert edited("a = [1, 2]\n", "a", to=[2]) == "a = [2]\n"
    assert edited("a = [ 1 ]\n", "a", to=[1, 2]) == "a = [ 1, 2 ]\n"
    assert edited("a = [\n 1\n ,2\n]\n", "a", to=[2]) == "a = [\n 2\n]\n"
    assert edited("a = ['x']\n", "a", to=["x", "y", "it's"]) == "a = ['x', 'y', \"it's\"]\n"
    assert edited("a = [1, 2]\n", "a", to=[]) == "a = []\n"


def test_numbers_and_booleans_are_told_apart() -> None:
    assert edited("a = 1\n", "a", to=True) == "a = true\n"
    assert edited("a = 1\n", "a", to=1.0) == "a = 1.0\n"
    assert edited("a = 0x1_0 # hex\n", "a", to=16) == "a = 0x1_0 # hex\n"
    assert edited('a = "07:32:00"\n', "a", to=Moment("07:32:00")) == "a = 07:32:00\n"
    assert edited("a = 2024-01-02 07:32:00.50z\n", "a", to=Moment("2024-01-02T07:32:00.5+00:00")).endswith("50z\n")
    assert edited("a = 2024-01-02 07:32:00.50z\n", "a", to=Moment("2024-01-02T07:32:00.05Z")).endswith("05Z\n")


def test_a_table_goes_with_all_below_it_and_comments_of_others_stay() -> None:
    toml = Toml("[a]\nx = 1\n\n# of b\n[b]\n# in b\ny = 1\n# after b\n\n[a.c]\nz = 1\n\n[[a.d]]\n[a.d.e]\n\n# end\n")
    assert toml.delete(["a"])
    assert toml.text() == "# of b\n[b]\n# in b\ny = 1\n# after b\n\n# end\n"
    assert toml.data == {"b": {"y": 1}}


def test_the_header_of_a_table_that_lost_its_last_key_stays() -> None:
    toml = Toml("[a]\nx = 1\n")
    assert toml.delete(["a", "x"])
    assert toml.text() == "[a]\n"
    assert toml.data == {"a": {}}


def test_a_table_is_never_replaced_by_a_value_nor_a_value_by_a_table() -> None:
    toml = Toml("a = 1\n[b]\nc = 1\n[[d]]\n")
    changes: list[Any] = [
        (["b"], 1),
        (["a"], {"x": 1}),
        (["a", "x"], 1),
        (["d"], [1]),
        (["d", "x"], 1),
        ([], 1),
        (["b"], None),
    ]
    for path, value in changes:
        with pytest.raises(TomlError):
            toml.set(path, value)
        assert toml.text() == "a = 1\n[b]\nc = 1\n[[d]]\n"
    toml.set(["d"], [{}])
    toml.set(["d"], toml.data["d"])


def test_a_change_that_fails_half_way_leaves_the_document_as_it_was() -> None:
    toml = Toml("[a]\nb = 1\n")
    with pytest.raises(TomlError, match=r"a\.b is no table"):
        toml.set(["a"], {"new": 1, "b": {"c": 1}})
    assert toml.text() == "[a]\nb = 1\n"
    assert toml.data == {"a": {"b": 1}}


@pytest.mark.parametrize("value", [{1: 2}, object(), 2**63, "\udcff", b"x", {"a": None}, Moment("25:00:00"), (1, {2})])
def test_what_toml_cannot_say_is_refused(value: Any) -> None:
    toml = Toml("")
    with pytest.raises(TomlError):
        toml.set(["a"], value)
    assert toml.text() == ""
    with pytest.raises(TomlError):
        dumps({"a": value})


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TomlError, match="100 levels"):
        Toml("").set(["a"], value)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a = 1\nb = [1, 2\n\n", 4, "the end of the text where , or ] should stand"),
        ("a = 1\na = 2\n", 2, "a is there already"),
        ("[a]\n\n[a]\n", 3, "a is there already"),
        ("a = 1 b = 2\n", 1, "'b = 2' where the line should end"),
        ("\nversion = two\n", 2, "'two' is no value (texts stand in quotes)"),
        ("x = 'a\n", 1, "a string that does not end on its line, or holds a control character"),
        ('x = "\\q"\n', 1, "'\\\\q\"' is no escape that TOML knows"),
        ("a = 1\nb = \"\"\"x\n\n", 2, "a string of several lines that does not end"),
        ('x = "\\ud800"\n', 1, "is no character"),
        ('x = "\\U00110000"\n', 1, "is no character"),
        ("[a.b.c]\nz = 1\n[a]\nb.c.y = 1\n", 4, "c is there already"),
        ("[a\n", 1, "the end of the line where ] should stand"),
        ("a = 99999999999999999999\n", 1, "99999999999999999999 does not fit into 64 bits"),
        ("a = 0x" + "f" * 5000 + "\n", 1, "does not fit into 64 bits"),
        ("a = " + "9" * 5000 + "\n", 1, "does not fit into 64 bits"),
        ("a\n", 1, "the end of the line where = should stand"),
        ("a = 2023-02-30\n", 1, "'2023-02-30' is no value"),
        ("# \udcff\n", 1, "a byte that is no UTF-8"),
        ("\ufeffa = 1\n", 1, "where a name should stand"),
    ],
)  # fmt: skip
def test_broken_input_is_refused_with_its_line(text: str, line: int, what: str) -> None:
    with pytest.raises(TomlError) as caught:
        Toml(text)
    assert caught.value.line == line
    assert what in str(caught.value)
    assert str(caught.value).startswith(f"line {line}: ")


MANY = 1_000_000  # just within what is read at all
HUGE = {
    "arrays": "a = " + "[" * MANY,
    "braces": "a = " + "{a=" * MANY,
    "both": "a = " + "[{a=" * MANY,
    "dotted": "a" + ".a" * MANY + " = 1",
    "header": "[a" + ".a" * MANY + "]",
    "closed": "a = " + "[" * 5000 + "]" * 5000,
    "16 MiB": "a = 1 # line\n" * (16 * 1024 * 1024 // 13),
    "one line of 16 MiB": "a" * 16 * 1024 * 1024,
    "zeros": "\0" * 3 * MANY,
    "quotes": '"' * 3 * MANY,
    "blank, then wrong": " " * 3 * MANY + "!",
    "array of blanks": "a = [" + " \n" * MANY,
    "string without end": 'a = "' + "x\\n" * MANY,
    "text without end": 'a = """' + "x\n\\n" * MANY,
    "number": "a = " + "1_" * MANY,
    "fraction": "a = 1." + "1" * MANY + "x",
    "random": "".join(chr((number * 7919) % 256) for number in range(MANY)),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_and_deep_input_is_refused_in_bounded_time(name: str) -> None:
    began = time.process_time()
    text = HUGE[name]
    if "MiB" not in name:
        text = text[: MANY - 2] + text[-1]
    with pytest.raises(TomlError) as caught:
        Toml(text)
    assert caught.value.line >= 1
    assert time.process_time() - began < 3


def test_depth_that_is_allowed_needs_no_deep_stack() -> None:
    text = "a = " + "[{b=" * 49 + "1" + "}]" * 49 + "\n"
    limit = sys.getrecursionlimit()
    depth, frame = 0, sys._getframe()
    while frame.f_back:
        depth, frame = depth + 1, frame.f_back
    try:
        sys.setrecursionlimit(depth + 500)
        toml = Toml(text)
        toml.set(["a"], toml.data["a"])
        toml.set(["b"], toml.data["a"])
        assert toml.delete(["b"])
    finally:
        sys.setrecursionlimit(limit)
    assert toml.text() == text


def test_a_large_file_is_read_in_seconds() -> None:
    text = "".join(f"[t{number}]\nname = 'x' # comment\nlist = [1, 2, 3]\n" for number in range(4000))
    began = time.process_time()
    toml = Toml(text)
    toml.set(["t3999", "name"], "y")
    assert time.process_time() - began < 5
    assert toml.data["t3999"] == {"name": "y", "list": [1, 2, 3]}


def test_dates_are_texts_of_their_own_kind() -> None:
    data = parse("a = 1979-05-27 07:32:00Z\nb = 07:32:00\n")
    assert data == {"a": "1979-05-27 07:32:00Z", "b": "07:32:00"}
    assert all(isinstance(value, Moment) for value in data.values())


def test_a_new_document_has_plain_values_first_and_no_empty_headers() -> None:
    text = dumps({"b": {"c": {"x": 1}}, "version": 2, "e": {}, "f": {"g": 1.5, "h.i": [{"j": "k"}]}})
    assert text == 'version = 2\n\n[b.c]\nx = 1\n\n[e]\n\n[f]\ng = 1.5\n"h.i" = [{j = "k"}]\n'
