# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shell scripts that run inside NVIDIA's images. Plain POSIX sh: some of those images have little more than a shell.

``driver-ready`` holds lines NAME=value, written by the driver's validation: where the driver's root is, and whether it
is the host's own driver.
"""

from __future__ import annotations

_WAIT_FOR_DRIVER = """\
#!/bin/sh
# Start only once the driver works on this node, with what the validation found out about it.
ready=/run/nvidia/validations/driver-ready
while [ ! -e "$ready" ]; do
  echo "waiting until the driver has been validated on this node"
  sleep 5
done
set -a
. "$ready"
set +a
"""

CONTAINER_TOOLKIT = (
    _WAIT_FOR_DRIVER
    + """\
# Restarting the runtime at once would catch it while it still starts this very container.
sleep 5
exec nvidia-toolkit
"""
)

DEVICE_PLUGIN = (
    _WAIT_FOR_DRIVER
    + """\
# Offer what the loaded modules make possible, unless the policy has decided already.
while read -r module rest; do
  case "$module" in
    nvidia_fs)
      export GDS_ENABLED="${GDS_ENABLED:-true}" MOFED_ENABLED="${MOFED_ENABLED:-true}" ;;
    gdrdrv)
      export GDRCOPY_ENABLED="${GDRCOPY_ENABLED:-true}" ;;
  esac
done < /proc/modules
exec nvidia-device-plugin
"""
)

MIG_MANAGER = (
    _WAIT_FOR_DRIVER
    + """\
# With a driver of the host, its services hold the GPUs: the manager has to stop them before it changes a layout.
export WITH_SHUTDOWN_HOST_GPU_CLIENTS="${IS_HOST_DRIVER:-false}"
exec nvidia-mig-manager
"""
)

DRIVER_STARTUP_PROBE = """\
#!/bin/sh
# The driver is up when its module is loaded, its daemons are up, and nvidia-smi can talk to it. Then say so to the
# validation, with the features that it has to check.
folder=/run/nvidia/validations
if [ ! -e /sys/module/nvidia/refcnt ]; then
  echo "the module nvidia is not loaded yet"
  exit 1
fi
if [ -e "$folder/.driver-daemons-status" ]; then
  read -r daemons < "$folder/.driver-daemons-status"
  if [ "$daemons" != Ready ]; then
    echo "the daemons of the driver are not ready: ${daemons:-no status}"
    exit 1
  fi
fi
nvidia-smi || { echo "nvidia-smi failed"; exit 1; }
# A reader must never see half a file: write beside it, then rename.
new="$folder/.driver-ctr-ready.$$"
{
  echo "GDRCOPY_ENABLED: ${GDRCOPY_ENABLED:-false}"
  echo "GDS_ENABLED: ${GDS_ENABLED:-false}"
  echo "GPU_DIRECT_RDMA_ENABLED: ${GPU_DIRECT_RDMA_ENABLED:-false}"
} > "$new" && mv -f "$new" "$folder/.driver-ctr-ready"
"""

DRIVER_PRE_STOP = "rm -f /run/nvidia/validations/.driver-ctr-ready /run/nvidia/validations/.driver-daemons-status"

# Sleeps in the background, so that the shell hears at once that it is to end.
_STAY = """\
trap 'exit 0' TERM INT
while :; do
  sleep 3600 &
  wait $!
done
"""

VALIDATOR_MAIN = 'echo "this node passed all validations"\n' + _STAY

VALIDATOR_PRE_STOP = "rm -f /run/nvidia/validations/*-ready"

SANDBOX_PRE_STOP = "rm -f /run/nvidia/validations/*"

VFIO_MANAGER = "vfio-manage bind --all || exit 1\n" + _STAY

VFIO_PRE_STOP = "vfio-manage unbind --all"


def _until(file: str, what: str) -> str:
    return f"""\
until [ -e /run/nvidia/validations/{file} ]; do
  echo "waiting until {what}"
  sleep 5
done
"""


def _for_workload(workload: str, file: str, what: str) -> str:
    """Wait for what a node with this workload needs; on any other there is nothing to wait for."""
    return (
        _until("workload-type", "the sandbox validator has told what the GPUs of this node are for")
        + f"""\
read -r workload < /run/nvidia/validations/workload-type || :
[ "$workload" = {workload} ] || exit 0
"""
        + _until(file, what)
    )


WAIT_FOR_VFIO = _for_workload("vm-passthrough", "vfio-pci-ready", "the GPUs are bound to VFIO")

WAIT_FOR_VGPU_DEVICES = _for_workload("vm-vgpu", "vgpu-devices-ready", "there are vGPUs on this node")

# The second is there when the vGPU manager is the host's own.
WAIT_FOR_VGPU_MANAGER = """\
cd /run/nvidia/validations || exit 1
until [ -e vgpu-manager-ready ] || [ -e host-vgpu-manager-ready ]; do
  echo "waiting until the vGPU manager works on this node"
  sleep 5
done
"""
