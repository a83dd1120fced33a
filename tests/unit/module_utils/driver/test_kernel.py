# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module file says whether a driver was built for a kernel, whatever packages and DKMS say."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._kernel import (
    Dkms,
    compiler,
    dkms_status,
    headers_missing,
    installed,
    prove_built,
    running,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

from .machine import KERNEL, VERSION, Machine, said

FOLDER = f"/lib/modules/{KERNEL}"
FILE = f"{FOLDER}/updates/dkms/nvidia.ko"
HEADERS = {f"{FOLDER}/build/Makefile": "", f"{FOLDER}/build/include/config/kernel.release": f"{KERNEL}\n"}
DEP = {f"{FOLDER}/modules.dep": "updates/dkms/nvidia.ko:\nupdates/dkms/nvidia.ko.xz:\nupdates/dkms/nvidia.ko.gz:\n"}
DIFFERS = "(WARNING! Diff between built and installed module!)"
STATUS = f"nvidia/{VERSION}, {KERNEL}, x86_64: added\n"


@pytest.mark.rows("H040")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed",
            Dkms("nvidia", "580.95.05", "6.8.0-45-generic", "x86_64", "installed", ""),
        ),
        (
            "nvidia, 470.256.02, 5.15.0-100-generic, x86_64: installed",
            Dkms("nvidia", "470.256.02", "5.15.0-100-generic", "x86_64", "installed", ""),
        ),
        ("nvidia/580.95.05: added", Dkms("nvidia", "580.95.05", "", "", "added", "")),
        ("nvidia, 470.256.02: added", Dkms("nvidia", "470.256.02", "", "", "added", "")),
        (
            "nvidia/580.95.05, 5.14.0-503.el9.aarch64, aarch64: installed-weak from 5.14.0-427.el9.aarch64",
            Dkms(
                "nvidia", "580.95.05", "5.14.0-503.el9.aarch64", "aarch64", "installed-weak",
                "from 5.14.0-427.el9.aarch64",
            ),
        ),
        (
            f"nvidia-current/550.163.01, 6.12.48-amd64, x86_64: installed {DIFFERS}",
            Dkms(
                "nvidia-current", "550.163.01", "6.12.48-amd64", "x86_64", "installed",
                DIFFERS,
            ),
        ),
        ("nvidia/580.95.05, 6.8.0, x86_64: built", Dkms("nvidia", "580.95.05", "6.8.0", "x86_64", "built", "")),
        ("nvidia/580.95.05: broken", Dkms("nvidia", "580.95.05", "", "", "broken", "")),
    ],
)  # fmt: skip
def test_lines_of_dkms_are_understood_in_both_forms(line: str, told: Dkms) -> None:
    assert dkms_status(f"{line}\n") == [told]


@pytest.mark.rows("H040")
def test_what_is_no_line_of_dkms_is_left_out() -> None:
    text = "Error! Could not locate dkms.conf file.\nFile: /var/lib/dkms/nvidia/1/source/dkms.conf does not exist.\n\n"
    assert dkms_status(text) == []


def test_the_running_kernel_is_the_trees(tmp_path: Path) -> None:
    assert running(Machine(tmp_path).files) == KERNEL


def test_a_module_is_read_with_version_flavour_signer_and_kernel(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DEP)
    machine.put(FILE, machine.module() + b"~Module signature appended~\n")
    built = installed(machine, machine.files, KERNEL)
    assert built is not None
    assert (built.version, built.flavour, built.signer) == (VERSION, "open", "(appended signature)")
    assert (built.file, built.built_for, built.listed) == (FILE, KERNEL, True)


@pytest.mark.parametrize(("ending", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_modules_are_read(tmp_path: Path, ending: str, pack) -> None:
    machine = Machine(tmp_path, DEP)
    machine.put(FILE + ending, pack(machine.module(license="NVIDIA")))
    built = installed(machine, machine.files, KERNEL)
    assert built is not None
    assert (built.version, built.flavour) == (VERSION, "proprietary")


def test_zstd_modules_are_read_by_modinfo(tmp_path: Path) -> None:
    machine = Machine(tmp_path).put(f"{FILE}.zst", "packed")
    machine.answers["modinfo"] = said(f"version:{VERSION}\0license:Dual MIT/GPL\0signer:Canonical\0")
    built = installed(machine, machine.files, KERNEL)
    assert built is not None
    assert (built.version, built.flavour, built.signer) == (VERSION, "open", "Canonical")
    del machine.answers["modinfo"]
    unread = installed(machine, machine.files, KERNEL)
    assert unread is not None
    assert "zstd" in unread.unreadable
    with pytest.raises(Failure, match="compressed with zstd"):
        prove_built(machine, machine.files, KERNEL, VERSION)


def test_the_file_that_depmod_lists_wins_over_one_that_it_does_not(tmp_path: Path) -> None:
    other = f"{FOLDER}/kernel/nvidia-580srv/nvidia.ko"
    machine = Machine(tmp_path, {f"{FOLDER}/modules.dep": "kernel/nvidia-580srv/nvidia.ko:\n"})
    machine.put(FILE, machine.module(version="570.10")).put(other, machine.module())
    built = installed(machine, machine.files, KERNEL)
    assert built is not None
    assert built.file == other


@pytest.mark.parametrize("name", ["nvidia-current", "nvidia-current-open"])
def test_debians_own_names_count(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path)
    machine.put(f"{FOLDER}/updates/dkms/{name}.ko", machine.module())
    built = installed(machine, machine.files, KERNEL)
    assert built is not None
    assert built.version == VERSION
    assert installed(machine, machine.files, KERNEL, "nvidia-legacy") is None


def test_a_module_that_is_there_is_proved_without_a_build(tmp_path: Path) -> None:
    machine = Machine(tmp_path, DEP)
    machine.put(FILE, machine.module(signer="somebody"))
    assert prove_built(machine, machine.files, KERNEL, VERSION, flavour="open", signed=True).file == FILE
    assert machine.ran == []


@pytest.mark.rows("H039")
def test_a_build_that_was_skipped_for_want_of_headers_is_a_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {f"{FOLDER}/modules.dep": ""})
    machine.answers.update({"dkms status": said(f"nvidia/{VERSION}: added\n"), "dkms autoinstall": said("skipped")})
    with pytest.raises(Failure) as failed:
        prove_built(machine, machine.files, KERNEL, VERSION)
    told = failed.value.msg
    assert f"The headers of kernel {KERNEL} are not installed" in told
    assert f"linux-headers-{KERNEL}" in told
    assert "ended well" in told
    assert "Nothing was loaded or unloaded." in told
    assert machine.changes() == [f"dkms autoinstall -k {KERNEL}"]


def test_what_dkms_builds_when_asked_is_taken_whatever_it_ends_with(tmp_path: Path) -> None:
    machine = Machine(tmp_path, {**HEADERS, **DEP})

    def build(argv: list[str]):
        machine.put(FILE, machine.module())
        return said(rc=11, err="another module failed")

    machine.answers.update({"dkms status": said(STATUS), "dkms autoinstall": build})
    assert prove_built(machine, machine.files, KERNEL, VERSION).version == VERSION


def test_a_failed_build_shows_the_first_error_and_the_end_of_its_log(tmp_path: Path) -> None:
    log = "\n".join(
        ["conftest: cc is old", "nv.c:12: error: too few arguments", *(f"line {number}" for number in range(40))]
    )
    machine = Machine(tmp_path, {**HEADERS, f"/var/lib/dkms/nvidia/{VERSION}/build/make.log": log})
    machine.answers.update({"dkms status": said(STATUS), "dkms autoinstall": said(rc=10, err="Bad return status")})
    with pytest.raises(Failure) as failed:
        prove_built(machine, machine.files, KERNEL, VERSION)
    told = failed.value.msg
    assert "ended with 10: Bad return status" in told
    assert "nv.c:12: error: too few arguments" in told
    assert told.endswith("line 39")
    assert "line 10" not in told
    assert machine.ran.count(f"dkms autoinstall -k {KERNEL}") == 1


@pytest.mark.parametrize(
    ("fields", "options", "told"),
    [
        ({"version": "570.10"}, {}, "is version 570.10, not 580.95.05"),
        ({"license": "NVIDIA"}, {"flavour": "open"}, "is the proprietary module, not the open one"),
        ({"kernel": "6.8.0-40-generic"}, {}, "was built for kernel 6.8.0-40-generic, not for 6.8.0-45-generic"),
        ({}, {"signed": True}, "is not signed, and this host loads signed modules only"),
    ],
)
def test_a_module_that_is_not_the_wanted_one_is_a_failure(tmp_path: Path, fields, options, told: str) -> None:
    machine = Machine(tmp_path, {**HEADERS, **DEP})
    machine.put(FILE, machine.module(**fields))
    machine.answers["dkms status"] = said()
    with pytest.raises(Failure, match=told):
        prove_built(machine, machine.files, KERNEL, VERSION, **options)
    assert machine.changes() == []


def test_a_link_to_another_kernels_module_counts_where_the_kernel_takes_it(tmp_path: Path) -> None:
    path = f"{FOLDER}/weak-updates/nvidia.ko"
    machine = Machine(tmp_path, {f"{FOLDER}/modules.dep": "weak-updates/nvidia.ko:\n"})
    machine.put(path, machine.module(kernel="6.8.0-40-generic"))
    assert prove_built(machine, machine.files, KERNEL, VERSION).file == path


def test_a_module_that_depmod_does_not_list_is_listed_or_a_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.put(FILE, machine.module())
    machine.answers["depmod"] = lambda argv: (
        machine.put(f"{FOLDER}/modules.dep", "updates/dkms/nvidia.ko:\n") and said()
    )
    assert prove_built(machine, machine.files, KERNEL, VERSION).listed
    assert machine.changes() == [f"depmod {KERNEL}"]
    machine.put(f"{FOLDER}/modules.dep", "")
    machine.answers["depmod"] = said()
    with pytest.raises(Failure, match="depmod does not list"):
        prove_built(machine, machine.files, KERNEL, VERSION)


@pytest.mark.rows("H039")
def test_headers_are_there_missing_of_another_kernel_or_gone(tmp_path: Path) -> None:
    there = Machine(tmp_path / "a", HEADERS)
    assert headers_missing(there.files, KERNEL) is None
    missing = headers_missing(Machine(tmp_path / "b", DEP).files, KERNEL) or ""
    assert "skips its build without a word" in missing
    other = {**HEADERS, f"{FOLDER}/build/include/config/kernel.release": "6.8.0-40-generic\n"}
    assert "holds the headers of kernel 6.8.0-40-generic" in (
        headers_missing(Machine(tmp_path / "c", other).files, KERNEL) or ""
    )
    # As Debian's are: kernel.release is the version of the sources.
    debian = {
        **other,
        f"{FOLDER}/build/include/config/kernel.release": "6.1.176\n",
        f"{FOLDER}/build/include/generated/utsrelease.h": f'#define UTS_RELEASE "{KERNEL}"\n',
    }
    assert headers_missing(Machine(tmp_path / "f", debian).files, KERNEL) is None
    gone = Machine(tmp_path / "d", DEP)
    (tmp_path / f"d{FOLDER}/build").symlink_to("/usr/src/linux-headers-gone")
    assert "leads nowhere" in (headers_missing(gone.files, KERNEL) or "")
    assert "is not installed" in (headers_missing(Machine(tmp_path / "e").files, KERNEL) or "")


@pytest.mark.rows("H039")
@pytest.mark.parametrize(
    ("built_with", "there", "problem"),
    [
        ("gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0", {"gcc": "gcc (Ubuntu 11.4.0-1ubuntu1) 11.4.0"}, "gcc-12"),
        (
            "gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0",
            {"gcc": "gcc (Ubuntu 11.4.0-1ubuntu1) 11.4.0", "gcc-12": "gcc-12 (Ubuntu 12.3.0) 12.3.0"},
            "",
        ),
        ("gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5)", {"gcc": "gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5)"}, ""),
        ("gcc-13 (Debian 13.2.0-1) 13.2.0", {"gcc": "gcc (Debian 14.2.0-19) 14.2.0"}, ""),
        ("gcc-13 (Debian 13.2.0-1) 13.2.0", {}, "there is no gcc"),
        ("Ubuntu clang version 18.1.3", {}, "built with clang"),
        ("Ubuntu clang version 18.1.3", {"clang": "clang version 18.1.3"}, ""),
    ],
)
def test_a_compiler_older_than_the_kernels_is_named(tmp_path: Path, built_with: str, there, problem: str) -> None:
    machine = Machine(tmp_path, {f"/boot/config-{KERNEL}": f'CONFIG_X=y\nCONFIG_CC_VERSION_TEXT="{built_with}"\n'})
    for program, text in there.items():
        machine.answers[f"{program} --version"] = said(f"{text}\nCopyright\n")
    found = compiler(machine.files, machine, KERNEL)
    assert found.kernels == built_with
    assert (problem in found.problem) if problem else found.problem == ""


@pytest.mark.rows("H039")
def test_the_running_kernel_tells_its_compiler_without_a_configuration(tmp_path: Path) -> None:
    line = (
        f"Linux version {KERNEL} (b@host) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23) 13.2.0, GNU ld (Binutils) 2.42)"
    )
    machine = Machine(tmp_path, {"/proc/version": line})
    machine.answers["gcc --version"] = said("gcc (Ubuntu 9.4.0) 9.4.0")
    found = compiler(machine.files, machine, KERNEL)
    assert found.kernels == "x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23) 13.2.0"
    assert "was built with gcc 13, and gcc here is 9" in found.problem
