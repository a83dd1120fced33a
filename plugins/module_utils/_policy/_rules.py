# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules across keys: what the chart refuses to render, what the controller refuses, settings that cancel each other."""

from __future__ import annotations

import difflib
from typing import Any, Callable, Iterator, List, Mapping, Tuple

from .._matrix import BRANCHES, ENDED, LAST_FOR_OLD_GPUS, LATEST, LIMITS, PAST, RELEASES, branch_of, version_parts
from .._nodes._keys import CONTAINER, PASSTHROUGH, VGPU
from .._plan import ERROR, INFO, WARNING, Finding
from ._cuda import branch_for, cuda_of, newest_for, too_new

Values = Mapping[str, Any]  # every key's value, by its path in Helm values
Rule = Callable[[Values], Iterator[Finding]]

END_OF_LIFE = "policy.driver-end-of-life"
_GDS_NEEDS_OPEN = version_parts(LIMITS["gds"].oldest)


def judge(values: Values) -> List[Finding]:
    """Every rule's findings."""
    return [finding for rule in RULES for finding in rule(values)]


def _refused(path: str, detail: str, remedy: str) -> Finding:
    return Finding("policy.contradiction", ERROR, detail, path=path, remedy=remedy)


# Parts that only serve virtual machines, and the mode that each needs ("": any).
_SANDBOX_PARTS = {
    "vgpuManager": "",
    "vgpuDeviceManager": "",
    "vfioManager": "",
    "sandboxDevicePlugin": "kubevirt",
    "kataSandboxDevicePlugin": "kata",
    "ccManager": "kata",
}


def runs(values: Values, part: str) -> bool:
    """Whether a part of the policy is on, and so is what it is for."""
    if part in _SANDBOX_PARTS:
        mode = _SANDBOX_PARTS[part]
        if not values["sandboxWorkloads.enabled"] or mode not in ("", values["sandboxWorkloads.mode"]):
            return False
    return bool(values.get(f"{part}.enabled", True))


def _idle(path: str, detail: str, remedy: str = "") -> Finding:
    return Finding("policy.no-effect", WARNING, detail, path=path, remedy=remedy)


# -- what makes Helm fail --------------------------------------------------------------------------------------------


def one_kind_of_policy(values: Values) -> Iterator[Finding]:
    """Rules 1, 2 and 7 of the chart. A GPUCluster is refused in any case, so no cluster is asked for DeviceClass."""
    if values["gpuCluster.deployCR"]:
        if values["clusterPolicy.deployCR"]:
            yield _refused(
                "gpuCluster.deployCR", "cannot be true together with clusterPolicy.deployCR.", "Set it to false."
            )
        if values["driver.enabled"] and not values["driver.nvidiaDriverCRD.enabled"]:
            yield _refused(
                "driver.enabled",
                "cannot be true with gpuCluster.deployCR, unless NVIDIADriver objects describe the drivers.",
                "Set gpuCluster.deployCR to false.",
            )
    elif not values["clusterPolicy.deployCR"]:
        yield _refused(
            "clusterPolicy.deployCR",
            "is false: the chart then makes no policy, and nothing is deployed.",
            "Set it to true.",
        )


def nri_needs_cdi_and_toolkit(values: Values) -> Iterator[Finding]:
    """Rules 3 and 4 of the chart."""
    if not values["cdi.nriPluginEnabled"]:
        return
    if not values["cdi.enabled"]:
        yield _refused("cdi.nriPluginEnabled", "cannot be true while cdi.enabled is false.", "Set cdi.enabled to true.")
    if not values["toolkit.enabled"]:
        yield _refused(
            "cdi.nriPluginEnabled",
            "cannot be true while toolkit.enabled is false: the plugin is part of the toolkit.",
            "Set toolkit.enabled to true.",
        )


# Block, key of the ConfigMap that must be there ("": any).
CONFIGS: Tuple[Tuple[str, str], ...] = (
    ("devicePlugin.config", ""),
    ("dcgmExporter.config", ""),
    ("migManager.config", "config.yaml"),
    ("migManager.gpuClientsConfig", "clients.yaml"),
)


def created_config_is_complete(values: Values) -> Iterator[Finding]:
    """Rules 5 and 6 of the chart, for every ConfigMap that values can make."""
    for block, key in CONFIGS:
        name, data = values[f"{block}.name"], values[f"{block}.data"]
        if not values[f"{block}.create"]:
            if data:
                yield _idle(
                    f"{block}.data", f"has no effect while {block}.create is false.", f"Set {block}.create to true."
                )
            continue
        if not data:
            yield _refused(
                f"{block}.data", "is empty although create is true.", "Give the contents, or set create to false."
            )
        elif key and key not in data:
            yield _refused(
                f"{block}.data", f"has no key {key}, which is the one that is read.", f"Write the contents below {key}."
            )
        if not name:
            yield _refused(f"{block}.name", "is empty although create is true.", "Give the ConfigMap a name.")


def default_config_exists(values: Values) -> Iterator[Finding]:
    block = "devicePlugin.config"
    default, data = values[f"{block}.default"], values[f"{block}.data"]
    if default and not values[f"{block}.name"]:
        yield _idle(f"{block}.default", f"has no effect while {block}.name is empty.", "Name the ConfigMap.")
    elif default and values[f"{block}.create"] and data and default not in data:
        close = difflib.get_close_matches(default, list(data), n=1)
        guess = f"Did you mean {close[0]}?" if close else f"There are {', '.join(sorted(data)[:8])}."
        yield _refused(f"{block}.default", f"is {default}, which data does not have.", guess)


# -- what the controller refuses -------------------------------------------------------------------------------------


def precompiled_stands_alone(values: Values) -> Iterator[Finding]:
    if not (values["driver.enabled"] and values["driver.usePrecompiled"]):
        return
    for name in ("gds", "gdrcopy"):
        if values[f"{name}.enabled"]:
            yield _refused(
                f"{name}.enabled", "is not possible with driver.usePrecompiled.", "Set one of the two to false."
            )
    version = str(values["driver.version"] or "")
    if version.startswith("sha256:"):
        yield _refused(
            "driver.version",
            "is a digest: with driver.usePrecompiled the tag names the kernel of each node.",
            "Give the branch, such as 595.",
        )
    elif "." in version:
        yield Finding(
            "policy.precompiled-version",
            WARNING,
            f"is {version}; precompiled images are mostly published by branch.",
            path="driver.version",
            remedy=f'Write the branch, "{version.split(".", 1)[0]}", unless your registry has that version.',
        )


def gds_needs_open_modules(values: Values) -> Iterator[Finding]:
    if not (values["gds.enabled"] and values["driver.enabled"]) or values["driver.kernelModuleType"] == "open":
        return
    version = str(values["gds.version"] or "")
    if not version or version.startswith("sha256:") or version_parts(version) >= _GDS_NEEDS_OPEN:
        yield _refused(
            "gds.enabled",
            f"needs driver.kernelModuleType open; it is {values['driver.kernelModuleType']}, and auto is not enough.",
            "Set driver.kernelModuleType to open.",
        )


# -- settings without effect -----------------------------------------------------------------------------------------


def parts_of_the_driver_pod(values: Values) -> Iterator[Finding]:
    if values["driver.enabled"]:
        return
    for path in ("gds.enabled", "gdrcopy.enabled", "driver.rdma.enabled", "driver.usePrecompiled"):
        if values[path]:
            yield _idle(path, "has no effect while driver.enabled is false: it is part of the driver's pods.",
                        "Where the driver is preinstalled, the image of the node brings it.")  # fmt: skip


def one_licence(values: Values) -> Iterator[Finding]:
    block = "driver.licensingConfig"
    if values[f"{block}.secretName"] and values[f"{block}.configMapName"]:
        yield _idle(f"{block}.configMapName", f"has no effect: {block}.secretName is set and wins.", "Leave it out.")


def pod_labels_are_on(values: Values) -> Iterator[Finding]:
    if values["dcgmExporter.podLabelAllowlistRegex"] and not values["dcgmExporter.enablePodLabels"]:
        yield _idle("dcgmExporter.podLabelAllowlistRegex", "has no effect while dcgmExporter.enablePodLabels is false.")


def sharing_says_what_it_is_not(values: Values) -> Iterator[Finding]:
    """Replicas of a GPU share its memory: said once, with what to do about it (S60)."""
    data = values["devicePlugin.config.data"] if values["devicePlugin.config.create"] else None
    for name, text in (data or {}).items():
        if "timeSlicing" in text and "replicas" in text:
            yield no_isolation("devicePlugin.config.data", name)


def no_isolation(where: str, name: str) -> Finding:
    """What sharing by time-slicing is not, of one named configuration."""
    return Finding(
        "policy.no-isolation",
        INFO,
        "shares GPUs by time-slicing: pods on one GPU are not kept apart in memory, and one can take it all.",
        path=f"{where}.{name}",
        remedy="Limits: sharing.mps. Full separation: MIG.",
    )


def cuda_fits_the_driver(values: Values) -> Iterator[Finding]:
    """What is built with a toolkit needs a driver that runs it (S35)."""
    if not values["cudaToolkit.enabled"]:
        return
    path, version = "cudaToolkit.version", str(values["cudaToolkit.version"] or "")
    if version and not cuda_of(version):
        yield _refused(path, "names no CUDA version.", "Write a version such as 13.0, or a tag that begins with one.")
    driver = str(values["driver.version"] or "")
    runs = newest_for(driver) if values["driver.enabled"] else ""
    if too_new(cuda_of(version), runs):
        needed = branch_for(cuda_of(version))
        remedy = f"Use driver branch {needed} or newer." if needed else "No driver branch that is known runs it."
        detail = f"is {version}; driver {driver or RELEASES[LATEST].images['driver'][2]} runs CUDA up to {runs}."
        yield Finding("policy.driver-too-old", ERROR, detail, path=path, remedy=remedy)


# Folders of the system itself, and those below which nothing of ours can be.
_SYSTEM = ("", "bin", "boot", "dev", "etc", "home", "lib", "lib64", "mnt", "opt", "proc", "root", "run", "sbin", "srv",
           "sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/lib64", "usr/local", "usr/sbin", "usr/share", "var",
           "var/lib")  # fmt: skip
_NEVER = ("boot", "dev", "proc", "sys")


def cuda_has_a_folder_of_its_own(values: Values) -> Iterator[Finding]:
    """A folder for each version and a link are put into it, so it is none that the system or others use."""
    path = "cudaToolkit.installDir"
    written = str(values[path] or "")
    parts = [part for part in written.split("/") if part not in ("", ".")]
    if values["cudaToolkit.enabled"] and written and ("/".join(parts) in _SYSTEM or parts[0] in _NEVER):
        remedy = "Choose a folder of its own, such as /usr/local/nvidia/cuda."
        yield _refused(path, f"is {written[:100]}, a folder of the system.", remedy)


def virtual_machines_can_have_gpus(values: Values) -> Iterator[Finding]:
    """What sandbox workloads need, and settings of theirs that lead nowhere (SBX-01)."""
    block = "sandboxWorkloads"
    if not values[f"{block}.enabled"]:
        for path, default in ((f"{block}.defaultWorkload", CONTAINER), ("vgpuManager.enabled", False)):
            if values[path] != default:
                yield _idle(path, f"has no effect while {block}.enabled is false.", f"Set {block}.enabled to true.")
        return
    if values[f"{block}.mode"] == "kata":
        if values[f"{block}.defaultWorkload"] == VGPU:
            detail = "is vm-vgpu, and machines of the mode kata have whole GPUs only."
            yield _refused(f"{block}.defaultWorkload", detail, f"Set it to {PASSTHROUGH}, or {block}.mode to kubevirt.")
        if values["vgpuManager.enabled"]:
            detail = f"has no use with {block}.mode kata, whose machines have whole GPUs only."
            yield _idle("vgpuManager.enabled", detail, "Set it to false.")
    part = "vgpuManager"
    repository, image, version = (str(values[f"{part}.{key}"] or "") for key in ("repository", "image", "version"))
    if runs(values, part) and not repository and not version and "/" not in image:
        detail = "has no image: NVIDIA publishes none of the vGPU manager."
        remedy = "Build it from the vGPU software of NVIDIA's licensing portal, push it to a registry of yours, and "
        yield _refused(part, detail, f"{remedy}give repository, image and version.")


# -- versions --------------------------------------------------------------------------------------------------------


def driver_branch_lives(values: Values) -> Iterator[Finding]:
    branch = branch_of(str(values["driver.version"] or "")) if values["driver.enabled"] else None
    known = BRANCHES.get(branch) if branch is not None else None
    newest = RELEASES[LATEST].images["driver"][2]
    if branch is None or known is None:
        return
    use = f'Use "{newest}"; GPUs older than Turing stay on branch {LAST_FOR_OLD_GPUS}.'
    if known.standing() == ENDED:
        detail = f"is {values['driver.version']}: branch {branch} (CUDA {known.cuda}) has reached its end of life."
        yield Finding(END_OF_LIFE, ERROR, detail, path="driver.version", remedy=use, accept=END_OF_LIFE)
    elif known.standing() == PAST:
        yield Finding(
            "policy.driver-past", WARNING, f"is {values['driver.version']}: the support of branch {branch} has ended.",
            path="driver.version", remedy=use,
        )  # fmt: skip


RULES: Tuple[Rule, ...] = (
    one_kind_of_policy,
    nri_needs_cdi_and_toolkit,
    created_config_is_complete,
    default_config_exists,
    precompiled_stands_alone,
    gds_needs_open_modules,
    parts_of_the_driver_pod,
    one_licence,
    pod_labels_are_on,
    sharing_says_what_it_is_not,
    cuda_fits_the_driver,
    cuda_has_a_folder_of_its_own,
    virtual_machines_can_have_gpus,
    driver_branch_lives,
)
