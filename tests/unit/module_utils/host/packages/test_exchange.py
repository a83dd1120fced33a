# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One transaction of many packages: what the real programs said, as it was recorded. Real runs:
tests/integration/hosts/test_driver_packages.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Done, Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._packages._exchange import (
    Exchange,
    carry_out,
    download,
    foresee,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

FLAVOUR = Exchange({"kmod-nvidia-latest-dkms": "3:580.95.05-1.el9"}, ("kmod-nvidia-open-dkms",))
# dnf 4.14, with --assumeno
ABORTED = """Dependencies resolved.
================================================================================
 Package                      Arch        Version                  Repo    Size
================================================================================
Installing:
 kmod-nvidia-latest-dkms      x86_64      3:580.95.05-1.el9        x      7.2 k
Removing:
 kmod-nvidia-open-dkms        x86_64      3:580.95.05-1.el9        @x     969

Transaction Summary
================================================================================
Install  1 Package
Remove   1 Package
"""
NO_MATCH = "Error: Unable to find a match: kmod-nvidia-latest-dkms-3:580.95.05-1.el9\n"
NO_SOLUTION = "\n Problem: package nvidia-driver-cuda-3:580.95.05-1.el9.x86_64 requires nvidia-kmod >= 3:580.95.05\n"


class Replay(Runner):
    """Says the same to every command, and keeps what apt was given as preferences."""

    def __init__(self, rc: int, out: str, err: str) -> None:
        super().__init__()
        self._answer = (rc, out, err)
        self.ran: list[str] = []
        self.preferences: list[str] = []

    def run(self, argv: Sequence[str], **_options: Any) -> Done:
        self.ran.append(" ".join(argv))
        paths = [word.partition("=")[2] for word in argv if word.startswith("Dir::Etc::preferences=")]
        self.preferences += [Path(path).read_text(encoding="utf-8") for path in paths]
        return Done(argv, *self._answer)


@pytest.mark.rows("H035")
def test_a_dry_run_of_dnf_is_aborted_and_tells_what_would_be_done() -> None:
    outlook = foresee("dnf", Replay(0, ABORTED, "Error: Operation aborted.\n"), FLAVOUR)
    assert (dict(outlook.comes), outlook.goes) == (dict(FLAVOUR.pins), FLAVOUR.remove)


@pytest.mark.parametrize("err", [NO_MATCH, NO_SOLUTION])
@pytest.mark.rows("H036")
def test_the_shell_of_dnf_ends_with_0_whatever_went_wrong_and_is_not_believed(err: str) -> None:
    for act in (foresee, download, carry_out):
        with pytest.raises(Failure, match=r"Unable to find a match|requires nvidia-kmod"):
            act("dnf", Replay(0, "Nothing to do.\nComplete!\n", err), FLAVOUR)


@pytest.mark.rows("H035")
def test_what_goes_for_another_architecture_too_is_no_other_package() -> None:
    said = "Remv libnvidia-gl-580 [580.95.05-1]\nRemv libnvidia-gl-580:i386 [580.95.05-1]\n"
    what = Exchange({"nvidia-open": "595.91.07-1"}, ("libnvidia-gl-580",))
    assert foresee("apt", Replay(0, said, ""), what).goes == ("libnvidia-gl-580",)
    carry_out("apt", Replay(0, said, ""), what)
    with pytest.raises(Failure, match="^wine:i386 would be removed too"):
        carry_out("apt", Replay(0, said + "Remv wine:i386 [9.0-1]\n", ""), what)


@pytest.mark.rows("H035")
def test_apt_takes_packages_that_come_as_dependencies_in_the_same_version() -> None:
    runner = Replay(0, "Inst libcuda1 (580.95.05-1 testbed [amd64])\n", "")
    carry_out("apt", runner, Exchange({"nvidia-driver-cuda": "580.95.05-1"}, (), "580.95.05"))
    assert len(runner.preferences) == len(runner.ran) == 2  # a dry run, then the run
    assert {text.split("\n\n")[0] for text in runner.preferences} == {
        "Package: *nvidia* *cuda* libnvsdm*\nPin: version 580.95.05-*\nPin-Priority: 1001"
    }
    with pytest.raises(Failure, match="is no version"):
        carry_out("apt", runner, Exchange({"a": "1-1"}, (), "580\nPin: version 1"))
