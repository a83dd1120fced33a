# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot is read without mokutil; a key is asked for without the password ever being seen."""

from __future__ import annotations

import contextlib
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._driver._secure_boot import (
    HASH,
    SIG_ENFORCE,
    Key,
    Staged,
    enrolment,
    key,
    pending,
    stage,
    state,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure
from ansible_collections.gpufleet.nvidia.tests.helpers.faults import Died, Steps

from .machine import Machine, said

VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
CERTIFICATE = "/var/lib/dkms/mok.pub"
PAIR = {"/var/lib/dkms/mok.key": "k", CERTIFICATE: "c"}
PASSWORD = "one time only"
HASHED = "$6$salt$0123456789abcdef"


class Firmware:
    """A machine with mokutil and the firmware's store."""

    def __init__(self, folder: Path, enrolled: str = "is not enrolled") -> None:
        self.machine = Machine(folder, {**PAIR, "/var/lib/x": ""})
        self.now = enrolled
        self.hash_seen: list[tuple[str, int]] = []
        self.machine.answers["mokutil"] = self.mokutil
        self.imports = said()

    def mokutil(self, argv: list[str]):
        if argv[1] == "--test-key":
            return said(f"{argv[2]} {self.now}\n", rc=0 if self.now == "is not enrolled" else 1)
        if argv[1] == "--generate-hash":
            first, second, _end = self.machine.stdin[-1].split("\n")
            assert first == second
            return said(f"input password: \ninput password again: \n{HASHED}\n")
        assert argv[1] == "--import"
        place = Path(argv[4])
        self.hash_seen.append((place.read_text(), stat.S_IMODE(place.stat().st_mode)))
        if self.imports.rc == 0:
            self.now = "is already in the enrollment request"
        return self.imports


@pytest.mark.rows("H044")
@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({VARIABLE: b"\x06\x00\x00\x00\x01"}, ("enabled", True)),
        ({VARIABLE: b"\x06\x00\x00\x00\x00"}, ("disabled", False)),
        ({"/sys/kernel/x": ""}, ("disabled", False)),
        ({VARIABLE: b"\x06\x00\x00\x00\x00", SIG_ENFORCE: "Y\n"}, ("disabled", True)),
        (
            {VARIABLE: b"\x06\x00\x00\x00\x00", "/sys/kernel/security/lockdown": "none [integrity] confidentiality\n"},
            ("disabled", True),
        ),
    ],
)
def test_the_state_comes_from_the_firmware_and_the_kernel(tmp_path: Path, files, told: tuple[str, bool]) -> None:
    machine = Machine(tmp_path, files)
    found = state(machine.files)
    assert (found.secure_boot, found.signed_only) == told
    assert machine.ran == []


@pytest.mark.parametrize(
    ("files", "pair"),
    [
        (PAIR, Key("/var/lib/dkms/mok.key", CERTIFICATE)),
        (
            {"/var/lib/shim-signed/mok/MOK.priv": "", "/var/lib/shim-signed/mok/MOK.der": ""},
            Key("/var/lib/shim-signed/mok/MOK.priv", "/var/lib/shim-signed/mok/MOK.der"),
        ),
        (
            {
                **PAIR,
                "/etc/dkms/framework.conf": "# mok_certificate=/no\n",
                "/etc/dkms/framework.conf.d/own.conf": 'mok_signing_key="/etc/keys/k"\nmok_certificate=/etc/keys/c\n',
                "/etc/keys/c": "",
            },
            Key("/etc/keys/k", "/etc/keys/c"),
        ),
        ({}, None),
    ],
)
def test_the_key_that_dkms_signs_with_is_found(tmp_path: Path, files, pair) -> None:
    assert key(Machine(tmp_path, files).files) == pair


@pytest.mark.rows("H045")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("is already enrolled", "enrolled"),
        ("is already in db", "enrolled"),
        ("is already in the enrollment request", "pending"),
        ("is not enrolled", "not_enrolled"),
        ("EFI variables are not supported on this system", "unknown"),
    ],
)
def test_what_mokutil_says_of_a_key_is_understood(tmp_path: Path, words: str, told: str) -> None:
    assert enrolment(Firmware(tmp_path, words).machine, CERTIFICATE) == told


@pytest.mark.rows("H045")
def test_a_key_is_asked_for_once_and_the_password_is_seen_nowhere(tmp_path: Path) -> None:
    firmware = Firmware(tmp_path)
    machine = firmware.machine
    staged = stage(machine, machine.files, PASSWORD)
    assert staged == Staged("pending", CERTIFICATE, True)
    assert staged.mok_enrolment_pending
    assert firmware.hash_seen == [(f"{HASHED}\n", 0o600)]
    assert not machine.files.exists(HASH)
    seen = [*machine.ran, str(asdict(staged)), pending(staged.certificate).sentence()]
    assert not [one for one in seen if PASSWORD in one or HASHED in one]
    assert [one.split(" ")[1] for one in machine.ran] == ["--test-key", "--generate-hash", "--import", "--test-key"]
    again = stage(machine, machine.files, "another")
    assert again == Staged("pending", CERTIFICATE, False)
    assert machine.ran.count(f"mokutil --import {CERTIFICATE} --hash-file {tmp_path}{HASH}") == 1


@pytest.mark.rows("H045")
def test_a_person_is_told_what_to_do_at_the_console() -> None:
    finding = pending(CERTIFICATE)
    assert (finding.id, finding.severity) == ("mok_enrolment_pending", "warning")
    assert "MokManager" in finding.remedy


@pytest.mark.rows("H045")
def test_nothing_is_asked_for_an_enrolled_key(tmp_path: Path) -> None:
    firmware = Firmware(tmp_path, "is already enrolled")
    staged = stage(firmware.machine, firmware.machine.files, PASSWORD)
    assert (staged.state, staged.changed, staged.mok_enrolment_pending) == ("enrolled", False, False)
    assert len(firmware.machine.ran) == 1


@pytest.mark.rows("H045")
def test_failures_say_what_is_missing_and_leave_no_hash(tmp_path: Path) -> None:
    bare = Machine(tmp_path / "bare")
    with pytest.raises(Failure, match="no key that DKMS signs modules with"):
        stage(bare, bare.files, PASSWORD)
    without = Machine(tmp_path / "without", PAIR)
    with pytest.raises(Failure, match="Install mokutil"):
        stage(without, without.files, PASSWORD)
    firmware = Firmware(tmp_path / "full")
    firmware.imports = said(rc=1, err="Failed to enroll new keys")
    with pytest.raises(Failure, match="Failed to enroll new keys") as failed:
        stage(firmware.machine, firmware.machine.files, PASSWORD)
    assert PASSWORD not in failed.value.msg
    assert not firmware.machine.files.exists(HASH)
    for wrong in ("", "two\nlines", "x" * 257):
        with pytest.raises(Failure, match="printable characters"):
            stage(firmware.machine, firmware.machine.files, wrong)
    silent = Firmware(tmp_path / "silent")
    silent.machine.answers["mokutil --import"] = said()
    with pytest.raises(Failure, match="the firmware has no request"):
        stage(silent.machine, silent.machine.files, PASSWORD)


@pytest.mark.rows("H045")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_dies_anywhere_leaves_no_hash_after_the_next(tmp_path: Path, moment: str) -> None:
    for at in range(1, 40):
        firmware = Firmware(tmp_path / str(at))
        machine = firmware.machine
        steps = Steps(at, moment, Died())
        machine.watch = steps
        with contextlib.suppress(Died):
            stage(machine, machine.files, PASSWORD)
        machine.watch = Steps()
        staged = stage(machine, machine.files, PASSWORD)
        assert staged.mok_enrolment_pending
        assert not machine.files.exists(HASH)
        if not steps.injected:
            break
    assert at > 5
