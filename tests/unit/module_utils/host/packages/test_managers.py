# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the real programs, as they were recorded, and what is asked of them. Real runs: tests/integration/hosts.

Recorded with apt 2.6 and 3.0, dnf 4.14, rpm 4.18 and zypper 1.14.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done, Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages import Manager, _zypper, manager
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages._apt import Apt
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

Answer = tuple[str, int, str, str]  # a pattern for the command, its status, output, errors


class Replay(Runner):
    """Answers each command as the program did when it was recorded; what was not recorded is an error of the test."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self._answers = answers
        self.ran: list[str] = []

    def run(self, argv: Sequence[str], **_options: Any) -> Done:
        command = " ".join(argv)
        self.ran.append(command)
        for pattern, status, out, err in self._answers:
            if re.search(pattern, command):
                return Done(argv, status, out, err)
        raise AssertionError(f"nobody recorded `{command}`")


def having(name: str, *answers: Answer) -> tuple[Manager, list[str]]:
    runner = Replay(*answers)
    return manager(runner, Files(), name), runner.ran


PINS = {"alpha": "1.17.8-1", "beta": "1.17.8-1"}
NAMES = ["alpha", "beta", "nope"]

# --- Which one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("programs", "found"),
    [(["apt-get"], "apt"), (["dnf"], "dnf"), (["zypper"], "zypper"), (["apt-get", "dnf", "zypper"], "apt")],
)
def test_the_manager_of_the_host_is_found(tmp_path: Path, programs: list[str], found: str) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    for program in programs:
        (tmp_path / "usr/bin" / program).touch()
    assert manager(Runner(), Files(Root(str(tmp_path)))).name == found


def test_a_host_without_any_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="none of apt, dnf and zypper"):
        manager(Runner(), Files(Root(str(tmp_path))))
    with pytest.raises(Failure, match="'pacman' is no package manager that is known"):
        manager(Runner(), Files(Root(str(tmp_path))), "pacman")


def dnf5(root: Path, *answers: Answer) -> tuple[Manager, list[str]]:
    """dnf 5 is what the program dnf of Fedora leads to. Its answers are as its sources print them."""
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/dnf5").touch()
    (root / "usr/bin/dnf").symlink_to("dnf5")
    runner = Replay(*answers)
    return manager(runner, Files(Root(str(root)))), runner.ran


STANZAS = """\
# Added by 'versionlock add' command on 2026-11-01 10:00:00
Package name: alpha
evr = 1.17.8-1

Package name: nvidia-*
evr >= 3:570
evr < 3:571

Package name: beta
evr != 1.0-1

Package name: gamma # entry is invalid: missing package conditions
"""


@pytest.mark.rows("H061")
def test_dnf_5_queries_end_their_lines_and_need_no_plugin_switched_off(tmp_path: Path) -> None:
    said = "alpha 0:1.17.8-1\nalpha 0:1.20.2-1\nbeta 2:1.0-1\n"
    one, ran = dnf5(tmp_path, ("repoquery", 0, said, ""))
    assert one.candidates(NAMES) == {"alpha": ["1.20.2-1", "1.17.8-1"], "beta": ["2:1.0-1"]}
    query = "repoquery --available --queryformat %{name} %{epoch}:%{version}-%{release}\\n alpha beta nope"
    assert ran == [f"dnf -q --cacheonly {query}"]
    found = one.probe(["alpha"], "[x]\n", b"")
    assert found == {"alpha": ["1.20.2-1", "1.17.8-1"]}
    assert re.search(r"--setopt=reposdir=\S+ .*--disable-plugin=\* repoquery", ran[-1])


@pytest.mark.rows("H061")
def test_dnf_5_holds_by_its_own_command_and_its_stanzas_are_read(tmp_path: Path) -> None:
    rpm = ("^rpm ", 0, "alpha\t1.17.8-1\n", "")
    one, ran = dnf5(tmp_path, ("versionlock list", 0, STANZAS, ""), ("versionlock (add|delete)", 0, "", ""), rpm)
    assert one.held(["alpha", "beta", "gamma", "nvidia-driver", "nope"]) == ["alpha", "nvidia-driver"]
    one.hold(["alpha"])
    assert ran[-1] == "dnf -q -y --disable-repo=* versionlock add alpha"
    one.unhold(["alpha", "nvidia-driver", "beta"])
    assert ran[-1] == "dnf -q -y --disable-repo=* versionlock delete alpha nvidia-*"
    before = len(ran)
    one.unhold(["nope"])
    assert [line for line in ran[before:] if "list" not in line] == []


@pytest.mark.rows("H061")
def test_dnf_5_that_fails_tells_why(tmp_path: Path) -> None:
    one, _ran = dnf5(tmp_path, ("versionlock list", 1, "", "Failed to parse /etc/dnf/versionlock.toml\n"))
    with pytest.raises(Failure, match=r"dnf cannot read its version locks: .*versionlock.toml"):
        one.held(["alpha"])


@pytest.mark.parametrize("name", ["apt", "dnf", "zypper"])
def test_nothing_is_called_for_nothing(name: str) -> None:
    one, ran = having(name)
    assert (one.installed([]), one.candidates([]), one.held([])) == ({}, {}, [])
    one.install({}, downgrade=True)
    one.remove([], purge=True)
    one.hold([])
    one.unhold([])
    assert ran == []


@pytest.mark.parametrize("name", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("pins", [{"--root=/x": "1"}, {"alpha": "1 2"}, {"alpha": "*"}, {"alpha": ""}, {"a;b": "1"}])
def test_what_could_be_an_option_or_a_pattern_is_refused(name: str, pins: Any) -> None:
    one, ran = having(name)
    with pytest.raises(Failure, match=r"is no (name of a package|version of alpha)"):
        one.install(pins, downgrade=True)
    assert ran == []


# --- apt --------------------------------------------------------------------------------------------------------------

DPKG = "dpkg-query -W"
NOT_FOUND = "dpkg-query: no packages found matching nope\n"


def test_apt_installed_is_what_dpkg_has_whole() -> None:
    said = "alpha\t1.17.8-1\tii \tamd64\nbeta\t1.17.8-1\thi \tamd64\ngamma\t1.0\trc \tamd64\ndelta\t2\tiF \tall\n"
    one, ran = having("apt", (DPKG, 1, said, NOT_FOUND))
    assert one.installed([*NAMES, "gamma", "delta"]) == PINS
    assert len(ran) == 1


def test_apt_installed_for_two_architectures_is_the_hosts_own() -> None:
    said = "alpha\t1\tii \ti386\nalpha\t2\tii \tamd64\n"
    one, _ran = having("apt", (DPKG, 0, said, ""), ("print-architecture", 0, "amd64\n", ""))
    assert one.installed(["alpha"]) == {"alpha": "2"}


def test_apt_candidates_come_newest_first_and_without_sources() -> None:
    said = (
        "     alpha |   1.17.8-1 | file:/srv/repo  Packages\n"
        "     alpha |   1.19.1-1 | file:/srv/repo  Packages\n"
        "     alpha |   1.19.1-1 | http://packages.example.com ./ Packages\n"
        "      beta |   1.19.1-1 | file:/srv/repo  Packages\n"
        "      beta |   1.20.0-1 | http://packages.example.com stable/main Sources\n"
    )
    one, _ran = having("apt", ("madison alpha beta nope", 0, said, "N: Unable to locate package nope\n"))
    assert one.candidates(NAMES) == {"alpha": ["1.19.1-1", "1.17.8-1"], "beta": ["1.19.1-1"]}


def test_apt_tells_why_its_lists_cannot_be_read() -> None:
    err = "E: Conflicting values set for option Signed-By regarding source https://p.example.com/ /: /a != \n"
    one, _ran = having("apt", ("madison", 100, "", err), ("update", 100, "Reading package lists...\n", err))
    with pytest.raises(Failure, match="apt cannot read its lists of packages: E: Conflicting values set"):
        one.candidates(["alpha"])
    with pytest.raises(Failure, match="apt cannot read the repository nvidia: E: Conflicting values set"):
        one.refresh("nvidia")


def test_apt_probes_a_repository_with_the_settings_of_its_way() -> None:
    read: list[str] = []

    class Reads(Replay):
        def run(self, argv: Sequence[str], **more: Any) -> Done:
            read.extend(Path(argv[argv.index("-c") + 1]).read_text() for _one in argv if _one == "-c")
            return super().run(argv, **more)

    said = ("madison", 0, " alpha | 1.0-1 | file:/srv / Packages\n", "")
    runner = Reads(("update", 0, "", ""), said)
    assert Apt(runner).probe(["alpha"], "deb https://x/ /\n", b"", "Acquire::x;\n") == {"alpha": ["1.0-1"]}
    assert read == ["Acquire::x;\n"] * 2
    plain = Replay(("update", 0, "", ""), said)
    Apt(plain).probe(["alpha"], "deb https://x/ /\n", b"")
    assert not [one for one in plain.ran if " -c " in one]


@pytest.mark.rows("H012")
@pytest.mark.parametrize(
    ("text", "name", "file"),
    [("Types: deb\nURIs: file:///srv/\nSuites: /\n", "cuda.sources", "cuda.sources"),
     ("deb [trusted=yes] file:///srv/ /\n", "cuda", "cuda.list")],
)  # fmt: skip
def test_apt_reads_a_source_under_the_ending_of_its_form(text: str, name: str, file: str) -> None:
    one, ran = having("apt", ("update", 0, "", ""), ("madison", 0, " alpha | 1.0-1 | file:/srv / Packages\n", ""))
    assert one.probe(["alpha"], text, b"") == {"alpha": ["1.0-1"]}
    one.refresh(name)
    ending = file.rpartition(".")[2]
    assert [re.search(r"Etc::sourcelist=\S*/source\.(\w+) ", line + " ")[1] for line in ran[:2]] == [ending] * 2
    assert f"Dir::Etc::sourcelist=sources.list.d/{file} " in ran[-1]


def test_apt_refreshes_one_repository_alone_and_fails_where_it_cannot_be_read() -> None:
    one, ran = having("apt", ("update", 0, "", ""))
    one.refresh("nvidia")
    one.refresh()
    assert "sourcelist=sources.list.d/nvidia.list" in ran[0]
    assert "sourceparts=-" in ran[0]
    assert "List-Cleanup=0" in ran[0]
    assert "sourcelist" not in ran[1]
    assert all("Error-Mode=any" in command for command in ran)


def test_apt_installs_all_in_one_transaction_and_removes_nothing() -> None:
    one, ran = having("apt", ("install", 0, "", ""))
    one.install(PINS, downgrade=False)
    one.install(PINS, downgrade=True)
    assert ran[0].endswith(" alpha=1.17.8-1 beta=1.17.8-1")
    for option in ("--no-remove", "--no-install-recommends", "--force-confold", "DPkg::Lock::Timeout="):
        assert option in ran[0]
    assert "--allow-downgrades" not in ran[0]
    assert "--allow-downgrades" in ran[1]


@pytest.mark.parametrize(
    ("out", "err", "words"),
    [
        (
            " alpha : Depends: beta (= 1.17.8-1) but 1.19.1-1 is to be installed\n",
            "E: Unable to correct problems, you have held broken packages.\n",
            r"alpha : Depends: beta \(= 1.17.8-1\) but 1.19.1-1 is to be installed E: Unable to correct",
        ),
        ("", "E: Version '1.17.8-1' for 'alpha' was not found\n", "E: Version '1.17.8-1' for 'alpha' was not found$"),
        (
            "The following packages will be DOWNGRADED:\n  alpha\n",
            "E: Packages were downgraded and -y was used without --allow-downgrades.\n",
            "E: Packages were downgraded",
        ),
        (
            "",
            "dpkg: error processing package alpha (--configure):\nE: Sub-process /usr/bin/dpkg returned an error\n",
            r"dpkg: error processing package alpha \(--configure\): E: Sub-process",
        ),
    ],
)
def test_apt_tells_why_nothing_was_installed(out: str, err: str, words: str) -> None:
    one, _ran = having("apt", ("install", 100, out, err))
    with pytest.raises(Failure, match=f"apt cannot install alpha=1.17.8-1, beta=1.17.8-1: {words}"):
        one.install(PINS, downgrade=False)


INSTALLED = "alpha\t1.17.8-1\tii \tamd64\nbeta\t1.17.8-1\trc \tamd64\n"


def test_apt_removes_nothing_else() -> None:
    plan = "Purg gamma [1.0]\nPurg alpha [1.17.8-1]\nPurg beta [1.17.8-1]\n"
    one, ran = having("apt", (DPKG, 1, INSTALLED, NOT_FOUND), ("purge -s", 0, plan, ""))
    with pytest.raises(Failure, match="alpha, beta cannot be removed: gamma would go too"):
        one.remove(NAMES, purge=True)
    assert [command for command in ran if "-y" in command] == []


def test_apt_purges_what_it_knows() -> None:
    plan = "Purg alpha [1.17.8-1]\nPurg beta [1.17.8-1]\n"
    one, ran = having("apt", (DPKG, 1, INSTALLED, NOT_FOUND), ("purge -s", 0, plan, ""), ("purge -q -y", 0, "", ""))
    one.remove(NAMES, purge=True)
    assert ran[-1].endswith(" alpha beta")


def test_apt_holds() -> None:
    one, ran = having("apt", ("showhold", 0, "alpha\nbeta:i386\n", ""), ("hold", 0, "", ""))
    assert one.held(NAMES) == ["alpha", "beta"]
    one.hold(["alpha"])
    one.unhold(["alpha"])
    assert ran[1:] == ["apt-mark hold alpha", "apt-mark unhold alpha"]


# --- rpm's two --------------------------------------------------------------------------------------------------------

RPM = "alpha\t1.17.8-1\nbeta\t1.17.8-1\npackage nope is not installed\n"


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_rpm_installed_with_epochs(name: str) -> None:
    one, _ran = having(name, ("^rpm -q", 1, RPM.replace("beta\t", "beta\t3:"), ""))
    assert one.installed(NAMES) == {"alpha": "1.17.8-1", "beta": "3:1.17.8-1"}


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_a_broken_database_of_rpm_is_not_taken_for_nothing_installed(name: str) -> None:
    one, _ran = having(name, ("^rpm -q", 1, "", "error: cannot open Packages database in /var/lib/rpm\n"))
    with pytest.raises(Failure, match="rpm cannot tell what is installed: error: cannot open Packages"):
        one.installed(NAMES)


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_rpm_downgrades_only_when_asked(name: str) -> None:
    answers = [("^rpm -q", 0, RPM.replace("1.17.8", "1.19.1"), ""), ("install", 0, "Complete!\n", "")]
    one, ran = having(name, *answers)
    with pytest.raises(Failure, match=r"alpha is 1\.19\.1-1 on this host, newer than 1\.17\.8-1\. Allow a downgrade"):
        one.install(PINS, downgrade=False)
    assert [command for command in ran if "install" in command] == []
    one.install(PINS, downgrade=True)
    assert ran[-1].endswith("alpha-1.17.8-1 beta-1.17.8-1" if name == "dnf" else "alpha=1.17.8-1 beta=1.17.8-1")
    assert ("--oldpackage" in ran[-1]) == (name == "zypper")


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_rpm_removes_nothing_that_is_needed(name: str) -> None:
    needed = "error: Failed dependencies:\n\tbeta = 1.17.8-1 is needed by (installed) alpha-1.17.8-1.x86_64\n"
    one, ran = having(name, ("^rpm -q", 0, "beta\t1.17.8-1\n", ""), ("^rpm -e --test beta", 1, "", needed))
    with pytest.raises(Failure, match=r"beta = 1\.17\.8-1 is needed by \(installed\) alpha"):
        one.remove(["beta"], purge=False)
    assert [command for command in ran if command.startswith(name)] == []


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_rpm_removes_only_what_is_there_and_no_dependencies(name: str) -> None:
    one, ran = having(name, ("^rpm -q", 1, RPM, ""), ("^rpm -e --test alpha beta", 0, "", ""), (" remove ", 0, "", ""))
    one.remove(NAMES, purge=True)
    assert ran[-1].endswith("alpha beta")
    assert "--noautoremove" in ran[-1] or "--no-clean-deps" in ran[-1]


# --- dnf --------------------------------------------------------------------------------------------------------------

QUERY = "alpha 0:1.17.8-1\nalpha 0:1.19.1-1\nbeta 3:1.17.8-1\n"


def test_dnf_candidates_newest_first_from_the_cache() -> None:
    one, ran = having("dnf", ("repoquery", 0, QUERY, "Unable to detect release version\n"))
    assert one.candidates(NAMES) == {"alpha": ["1.19.1-1", "1.17.8-1"], "beta": ["3:1.17.8-1"]}
    assert len(ran) == 1
    assert "--cacheonly" in ran[0]
    assert "--disableplugin=versionlock" in ran[0]


def test_dnf_reads_a_repository_that_was_never_read() -> None:
    never = ("--cacheonly", 1, "", "Error: Cache-only enabled but no cache for 'baseos'\n")
    one, _ran = having("dnf", never, ("repoquery", 0, QUERY, ""))
    assert sorted(one.candidates(NAMES)) == ["alpha", "beta"]
    one, _ran = having("dnf", never, ("repoquery", 1, "", "Error: Failed to download metadata for repo 'baseos'\n"))
    with pytest.raises(Failure, match="dnf cannot read its lists of packages: Error: Failed to download metadata"):
        one.candidates(NAMES)


def test_dnf_tells_what_it_does_not_find() -> None:
    out = "No match for argument: alpha-1.17.8-1\nPackage beta-1.17.8-1.x86_64 is already installed.\n"
    answer = ("install", 1, out, "Error: Unable to find a match: alpha-1.17.8-1\n")
    one, _ran = having("dnf", answer)
    with pytest.raises(Failure, match=r"No match for argument: alpha-1\.17\.8-1 Error: Unable to find a match"):
        one.install(PINS, downgrade=True)


LOCKS = "alpha-0:1.17.8-1.*\nalpha-base-0:1.17.8-1.*\nbeta\n"


def test_dnf_locks_are_for_the_installed_version_and_of_the_very_package() -> None:
    one, ran = having(
        "dnf", ("^rpm -q", 1, RPM, ""), ("versionlock list", 0, LOCKS, ""), ("versionlock (add|delete)", 0, "", "")
    )
    assert one.held(["alpha", "alpha-base", "alpha-base-x", "beta", "b"]) == ["alpha", "alpha-base", "beta"]
    one.hold(NAMES)
    assert ran[-1].endswith("versionlock add --raw alpha-0:1.17.8-1.* beta-0:1.17.8-1.*")
    one.unhold(["alpha", "beta"])
    assert ran[-1].endswith("versionlock delete alpha-0:1.17.8-1.* beta")


@pytest.mark.rows("H019", "H033")
def test_dnf_locks_by_a_pattern_hold_what_is_installed_in_such_a_version() -> None:
    locks = "*alpha*1.17*\n!beta-0:2.0-1.*\nalpha-570-0:1.17.8-1.*\n"
    one, ran = having(
        "dnf", ("^rpm -q", 1, RPM, ""), ("versionlock list", 0, locks, ""), ("versionlock delete", 0, "", "")
    )
    assert one.held(["alpha", "beta", "nope"]) == ["alpha"]
    one.unhold(["alpha", "beta"])
    assert ran[-1].endswith("versionlock delete *alpha*1.17*")


def test_dnf_without_its_plugin_holds_nothing_and_says_what_is_missing() -> None:
    missing = ("versionlock", 1, "", "No such command: versionlock. Please use /usr/bin/dnf --help\n")
    one, _ran = having("dnf", missing, ("^rpm -q", 0, RPM, ""))
    assert one.held(NAMES) == []
    with pytest.raises(Failure, match="its plugin versionlock is missing"):
        one.hold(NAMES)


# --- zypper -----------------------------------------------------------------------------------------------------------

SEARCH = """<?xml version='1.0'?>
<stream>
<message type="info">Loading repository data...</message>
<search-result version="0.0">
<solvable-list>
<solvable status="installed" name="alpha" kind="package" edition="1.17.8-1" arch="x86_64" repository="t"/>
<solvable status="other-version" name="alpha" kind="package" edition="1.19.1-1" arch="x86_64" repository="t"/>
<solvable status="installed" name="beta" kind="package" edition="1.9.0-1" arch="x86_64" repository="(System Packages)"/>
</solvable-list>
</search-result>
</stream>
"""
ZYPPER_LOCKS = """<?xml version='1.0'?>
<stream>
<locks size="2"><lock number="1"><name>alpha</name><type>package</type></lock>
<lock number="2"><name>be*</name><type>package</type></lock>
</locks></stream>
"""


def test_zypper_candidates_are_those_of_repositories() -> None:
    one, _ran = having("zypper", ("search", 0, SEARCH, ""))
    assert one.candidates(NAMES) == {"alpha": ["1.19.1-1", "1.17.8-1"]}
    one, _ran = having("zypper", ("search", 104, "<stream>\n</stream>\n", ""))
    assert one.candidates(NAMES) == {}


def test_zypper_locks() -> None:
    one, ran = having("zypper", ("xmlout locks", 0, ZYPPER_LOCKS, ""), ("(add|remove)lock", 0, "", ""))
    assert one.held(NAMES) == ["alpha", "beta"]
    one.hold(["alpha"])
    one.unhold(["alpha", "beta", "gamma"])
    assert [command for command in ran if "lock " in command] == [
        "zypper --non-interactive addlock alpha", "zypper --non-interactive removelock alpha be*",
    ]  # fmt: skip


def test_zypper_tells_why() -> None:
    out = "'alpha=1.17.8-1' not found in package names. Trying capabilities.\nNo provider of 'alpha=1.17.8-1' found.\n"
    one, _ran = having("zypper", ("install", 104, out, ""))
    with pytest.raises(Failure, match=r"zypper cannot install .*: No provider of 'alpha=1\.17\.8-1' found\.$"):
        one.install(PINS, downgrade=True)


def test_zypper_takes_the_key_of_the_named_repository_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_zypper, "_REPO", f"{tmp_path}/{{}}.repo")
    (tmp_path / "nvidia.repo").write_text("[nvidia]\nbaseurl=file:///srv\ngpgkey=file:///etc/pki/nvidia\n")
    one, ran = having("zypper", ("refresh", 0, "", ""), ("^rpm --import /etc/pki/nvidia$", 0, "", ""))
    one.refresh("nvidia")
    one.refresh("other")
    one.refresh()
    assert ran == [
        "rpm --import /etc/pki/nvidia",
        "zypper --non-interactive refresh nvidia",
        "zypper --non-interactive refresh other",
        "zypper --non-interactive refresh",
    ]


@pytest.mark.parametrize("name", ["dnf", "zypper"])
def test_keys_of_rpm_are_told_and_taken_out_where_they_are_still(name: str) -> None:
    said = "gpg-pubkey-d331e3fe-6b0ae6ba\ngpg-pubkey-3bf863cc-0000aaaa\n"
    one, ran = having(name, ("^rpm -q", 0, said, ""), ("^rpm -e", 0, "", ""))
    assert one.trusted() == said.split()
    one.distrust(["gpg-pubkey-d331e3fe-6b0ae6ba", "gpg-pubkey-gone-0"])
    assert ran[-1] == "rpm -e --allmatches gpg-pubkey-d331e3fe-6b0ae6ba"
    one, ran = having(name, ("^rpm -q", 1, "package gpg-pubkey is not installed\n", ""))
    assert one.trusted() == []
    one.distrust(["gpg-pubkey-gone-0"])
    assert len(ran) == 2
