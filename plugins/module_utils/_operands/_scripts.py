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

_TRAP = "trap 'exit 0' TERM INT\n"

# Sleeps in the background, so that the shell hears at once that it is to end.
_STAY = """\
while :; do
  sleep 3600 &
  wait $!
done
"""

VALIDATOR_MAIN = _TRAP + 'echo "this node passed all validations"\n' + _STAY

VALIDATOR_PRE_STOP = "rm -f /run/nvidia/validations/*-ready"

# With ``indices`` nothing is hidden: the places of all other GPUs, as NVML and DCGM count them, are printed instead,
# for an image that has a shell and no rm.
HIDE_GPUS = """\
#!/bin/sh
# hide.sh LIST [indices]: keep the GPUs that LIST names for this node (lines "NODE WHAT": a UUID, a PCI address or a
# model) from the program that starts next in this container. NVML lists the GPUs whose device node it can open. A node
# that is gone it makes again, and an empty file or folder in its place it replaces: a folder that is not empty stays.
list="$1" mode="$2" wanted="" hidden=0 left=0 place=0 places="" dev="" mounts=" "

fail() {
  echo "$1" >&2
  exit 1
}

[ -r "$list" ] && [ -n "$NODE_NAME" ] || fail "no list at $list or no NODE_NAME, so nothing is started"
while read -r node what || [ -n "$node" ]; do
  [ "$node" = "$NODE_NAME" ] && wanted="$wanted${wanted:+, }$what"
done < "$list"
[ -n "$wanted" ] || exit 0

while read -r id parent numbers root point rest; do
  mounts="$mounts$point "
  [ "$point" = /dev ] && dev="$rest"
done < /proc/self/mountinfo
case "$mode $dev" in
  indices* | *" - tmpfs "*) ;;
  *) fail "/dev is not this container's own, so no GPU is hidden and nothing is started" ;;
esac

look() { # model, UUID, address and minor number of a GPU, as the driver tells them
  model="" uuid="" address="" minor=""
  while IFS=: read -r key value; do
    value="${value#"${value%%[![:space:]]*}"}"
    value="${value%"${value##*[![:space:]]}"}"
    case "$key" in
      Model) model="$value" ;;
      "GPU UUID") uuid="$value" ;;
      "Bus Location") address="$value" ;;
      "Device Minor") minor="$value" ;;
    esac
  done < "$1"
}

listed() { # whether any of the arguments is on the list of this node
  while read -r node what || [ -n "$node" ]; do
    for name; do
      [ "$node" = "$NODE_NAME" ] && [ "$what" = "$name" ] && return 0
    done
  done < "$list"
  return 1
}

for file in /proc/driver/nvidia/gpus/*/information; do
  [ -e "$file" ] || break
  look "$file"
  case "$minor" in
    "" | *[!0-9]*) fail "$file has no Device Minor, so nothing is started" ;;
  esac
  case "$uuid" in
    # Question marks until the GPU has been opened.
    *"?"*) uuid="$( { look "$file"; echo "$uuid"; } 2>/dev/null 3< "/dev/nvidia$minor")" ;;
  esac
  if ! listed "$uuid" "$address" "$model"; then
    left=$((left + 1)) places="$places${places:+,}$place"
  else
    hidden=$((hidden + 1))
    if [ "$mode" != indices ]; then
      gone="/dev/nvidia$minor"
      case "$mounts" in
        *" $gone "*) umount "$gone" ;;
      esac
      rm -rf "$gone" && mkdir -p "$gone/hidden" ||
        fail "$gone of $model, $address, cannot be hidden in this container, so nothing is started"
    fi
    echo "hidden: $model, $address, $uuid" >&2
  fi
  place=$((place + 1))
done

if [ "$hidden" -eq 0 ]; then
  fail "$NODE_NAME has no GPU that hidden_gpus names ($wanted), so nothing is started"
elif [ "$left" -eq 0 ]; then
  fail "hidden_gpus names all $hidden GPUs of $NODE_NAME ($wanted), so nothing is started"
fi
[ "$mode" != indices ] || echo "$places"
"""

SANDBOX_PRE_STOP = "rm -f /run/nvidia/validations/*"

VFIO_MANAGER = "vfio-manage bind --all || exit 1\n" + _TRAP + _STAY

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
