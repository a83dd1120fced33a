# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units are looked at before they are changed. Real ones: tests/integration/hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host import _commands
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._commands import Runner
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._systemd import Units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import Failure

# Answers of systemctl as systemd 252 gives them; the program is a script that writes down how it was called.
SYSTEMCTL = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
show)
    shift 2
    [ "$1" = -- ] && shift
    gap=
    for unit; do
        printf "$gap"; gap='\\n'
        case "$unit" in
        on.service) printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\nUnitFileState=enabled\\nNeedDaemonReload=no\\n' ;;
        off.service) printf 'LoadState=loaded\\nActiveState=inactive\\nSubState=dead\\nUnitFileState=disabled\\nNeedDaemonReload=yes\\n' ;;
        *) printf 'LoadState=not-found\\nActiveState=inactive\\nSubState=dead\\nUnitFileState=\\nNeedDaemonReload=no\\n' ;;
        esac
    done ;;
start|restart) [ "$3" = broken.service ] && { echo "Job for broken.service failed." >&2; exit 1; } ; exit 0 ;;
esac
"""  # noqa: E501
JOURNALCTL = "#!/bin/sh\necho 'broken.service: cannot open /dev/nvidia0'\n"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log = tmp_path / "log"
    for name, text in (("systemctl", SYSTEMCTL.replace("{log}", str(log))), ("journalctl", JOURNALCTL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{_commands.PATH}")
    monkeypatch.setattr(_commands, "PATH", f"{tmp_path}:{_commands.PATH}")
    return log


def changes(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if not line.startswith("show")]


def test_states_are_read_by_one_call(log: Path) -> None:
    on, none, off = Units(Runner()).states(["on.service", "none.service", "off.service"])
    assert (on.exists, on.running, on.enabled, on.needs_reload) == (True, True, True, False)
    assert (off.exists, off.running, off.enabled, off.needs_reload) == (True, False, False, True)
    assert (none.exists, none.running, none.enabled) == (False, False, False)
    assert len(log.read_text().splitlines()) == 1


def test_nothing_is_called_for_no_units(log: Path) -> None:
    assert Units(Runner()).states([]) == []
    assert not log.exists()


def test_what_is_so_already_is_left(log: Path) -> None:
    units = Units(Runner())
    assert not units.start("on.service")
    assert not units.enable("on.service")
    assert not units.stop("off.service")
    assert not units.disable("off.service")
    assert changes(log) == []


def test_what_differs_is_changed(log: Path) -> None:
    units = Units(Runner())
    assert units.stop("on.service")
    assert units.disable("on.service")
    assert units.start("off.service")
    assert units.enable("off.service")
    assert units.restart("on.service")
    units.reload()
    assert changes(log) == [
        "stop -- on.service",
        "disable -- on.service",
        "start -- off.service",
        "enable -- off.service",
        "restart -- on.service",
        "daemon-reload",
    ]


def test_a_unit_that_does_not_start_tells_its_own_last_words(log: Path) -> None:
    with pytest.raises(Failure, match=r"broken\.service did not start: .*cannot open /dev/nvidia0"):
        Units(Runner()).start("broken.service")


@pytest.mark.parametrize("name", ["", "--help", "a b.service", "nvidia", "a.service\n", "../a.service", "*.service"])
def test_what_is_no_name_of_a_unit_is_refused(log: Path, name: str) -> None:
    with pytest.raises(Failure, match="is no name of a unit"):
        Units(Runner()).state(name)
    assert not log.exists()
