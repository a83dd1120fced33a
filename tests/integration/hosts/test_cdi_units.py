# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that make CDI specifications anew, run by a real systemd: a good one is put in place, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._cdi_units import (
    PATH_UNIT,
    SERVICE,
    unit_files,
)
from ansible_collections.gpufleet.nvidia.tests.testbed.hosts import Host

pytestmark = pytest.mark.hosts

ARGV = ("/usr/bin/nvidia-ctk", "cdi", "generate", "--class=a b%$x")
GOOD = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n    - name: GPU-1\n"
EMPTY = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"
# Writes /tmp/spec to its --output, and what it was called with to a file.
CTK = """\
#!/bin/sh
for each; do echo "$each"; done > /tmp/called
for each; do case $each in --output=*) cat /tmp/spec > "${each#--output=}";; esac; done
"""


@pytest.fixture(params=["/var/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml"])
def output(host: Host, request: pytest.FixtureRequest) -> Iterator[str]:
    """A host with the units; where they write."""
    path = str(request.param)
    for name, text in unit_files(ARGV, path, int(host.run("systemctl --version").stdout.split()[1])).items():
        host.put(name, text)
    host.put("/usr/bin/nvidia-ctk", CTK)
    host.put("/usr/bin/nvidia-smi", "#!/bin/sh\ntest -e /tmp/driver\n")
    host.put("/tmp/spec", GOOD)
    host.run("chmod 755 /usr/bin/nvidia-ctk /usr/bin/nvidia-smi; touch /tmp/driver; systemctl daemon-reload")
    yield path
    host.run(
        f"systemctl disable --now {SERVICE} {PATH_UNIT}; systemctl reset-failed; "
        f"rm -rf /etc/systemd/system/nvidia-cdi-refresh.* /usr/bin/nvidia-ctk /usr/bin/nvidia-smi {path} /tmp/driver; "
        "systemctl daemon-reload"
    )


@pytest.mark.rows("H080", "P025")
def test_the_service_puts_a_good_one_in_place_and_keeps_it(host: Host, output: str) -> None:
    checked = host.run(f"systemd-analyze verify {SERVICE} {PATH_UNIT}", check=False)
    assert "nvidia-cdi-refresh" not in checked.stderr, checked.stderr
    host.run(["systemctl", "enable", "--now", SERVICE, PATH_UNIT])
    assert host.get(output).decode() == GOOD
    assert host.run(f"stat -c %a {output}").stdout == "644\n"
    assert "--class=a b%$x\n" in host.run("cat /tmp/called").stdout
    assert host.run(f"ls -A {output.rpartition('/')[0]}").stdout.split() == ["nvidia.yaml"]

    for spec, driver in ((EMPTY, True), ("", True), (GOOD.replace("GPU-1", "GPU-2"), False)):
        host.put("/tmp/spec", spec)
        host.run("touch /tmp/driver" if driver else "rm /tmp/driver")
        assert host.run(["systemctl", "restart", SERVICE], check=False).returncode
        assert host.get(output).decode() == GOOD

    # The driver comes up later: nobody has to do anything.
    host.run("touch /tmp/driver")
    host.run(f"for i in $(seq 150); do grep -q GPU-2 {output} && exit 0; sleep 0.1; done; exit 1")

    # A change that the path unit watches.
    host.put("/tmp/spec", GOOD.replace("GPU-1", "GPU-3"))
    host.run("touch /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi; echo >> /usr/bin/nvidia-smi")
    host.run(f"for i in $(seq 150); do grep -q GPU-3 {output} && exit 0; sleep 0.1; done; exit 1")
