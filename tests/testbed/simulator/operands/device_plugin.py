# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device plugin and its config-manager (gpu-operator.md 7.4, 7.5; mig-plugin-gfd.md 4)."""

from __future__ import annotations

from ..advertise import PluginConfig, PluginError, load, resources, strategy_of
from ..context import Crash, Ctx, Done, Up, Wait
from . import Program

LINK = "link:"
SOCKETS = "/var/lib/kubelet/device-plugins"
LISTS = {"envvar", "volume-mounts", "cdi-annotations", "cdi-cri"}


# -- configuration, shared with GFD and the MPS daemon


def config_text(c: Ctx) -> str | None:
    """The configuration that CONFIG_FILE leads to: a link that config-manager made. None without CONFIG_FILE."""
    path = c.env.get("CONFIG_FILE", "")
    if not path:
        return None
    text = c.read(path)
    if text is None:
        raise Crash(f"unable to load config: open {path}: no such file or directory")
    if text.startswith(LINK):
        target = text.removeprefix(LINK)
        if target == "/dev/null":
            return ""
        text = c.read(target)
        if text is None:
            raise Crash(f"unable to load config: open {path}: no such file or directory (it links to {target})")
    return text


def config_of(c: Ctx) -> PluginConfig:
    """Read once, and again after config-manager has sent its signal."""
    signal = c.volumes.get("", {}).get(_process(c), "")
    if "config" not in c.mem or c.mem.get("signal") != signal:
        c.mem["signal"] = signal
        try:
            c.mem["config"] = load(config_text(c))
        except PluginError as error:
            raise Crash(f"unable to load config: {error}") from None
        c.mem.pop("resources", None)
        c.mem.pop("published", None)
    config: PluginConfig = c.mem["config"]
    return config


def _process(c: Ctx) -> str:
    script = c.script()
    argv = list(script.command) if script and script.command else c.container.argv
    return argv[0].rsplit("/", 1)[-1] if argv else "nvidia-device-plugin"


def config_manager(c: Ctx) -> Up | Done:
    name = c.need_env("NODE_NAME", "config-manager reads the node's label")
    label = c.need_env("NODE_LABEL", "config-manager must know which label chooses")
    source = c.need_env("CONFIG_FILE_SRCDIR", "config-manager must know where configurations are")
    target = c.need_env("CONFIG_FILE_DST", "config-manager must know where to link the chosen one")
    if "asked" not in c.mem:
        c.call(f"unable to get node {name}", lambda api: api.get(f"/api/v1/nodes/{name}"))
        c.need_right("list", "", "nodes")
        c.need_right("watch", "", "nodes")
        c.mem["asked"] = True
    there = c.listing(source)
    if there is None:
        raise Crash(f"error reading {source}: open {source}: no such file or directory")
    there = [entry for entry in there if not entry.startswith("..")]
    chosen = c.node.labels.get(label) or c.env.get("DEFAULT_CONFIG", "")
    if chosen:
        if chosen not in there:
            raise Crash(
                f"specified config {chosen} does not exist in {source} (label {label}; there are: "
                f"{', '.join(there) or 'none'})"
            )
        link = f"{LINK}{source.rstrip('/')}/{chosen}"
    else:
        link = _fallback(c, source, there)
    old = c.read(target)
    if old != link:
        c.write(target, link, "the chosen configuration cannot be linked")
        if c.read(target) != link:
            raise Crash(f"symlink {target}: no such file or directory (no volume is mounted there)")
    oneshot = c.env.get("ONESHOT", "false").lower() == "true"
    if c.env.get("SEND_SIGNAL", "true").lower() == "true" and not oneshot and old not in (None, link):
        if not (c.pod.spec.get("shareProcessNamespace") or c.pod.spec.get("hostPID")):
            raise Crash("error sending signal: no process found (neither shareProcessNamespace nor hostPID is set)")
        process = c.need_env("PROCESS_TO_SIGNAL", "config-manager must know whom to signal").rsplit("/", 1)[-1]
        signals = c.volumes.setdefault("", {})
        signals[process] = str(int(signals.get(process, "0")) + 1)
        c.node.changed()
    return Done() if oneshot else Up()


def _fallback(c: Ctx, source: str, there: list[str]) -> str:
    for strategy in filter(None, c.env.get("FALLBACK_STRATEGIES", "").split(",")):
        if strategy == "named" and "default" in there:
            return f"{LINK}{source.rstrip('/')}/default"
        if strategy == "single" and len(there) == 1:
            return f"{LINK}{source.rstrip('/')}/{there[0]}"
        if strategy == "empty":
            return f"{LINK}/dev/null"
    raise Crash(
        f"no configuration is chosen, and no fallback strategy applies ({c.env.get('FALLBACK_STRATEGIES', '')!r})"
    )


# -- the plugin


def step(c: Ctx) -> Up | Done:
    script = c.script()
    if script is not None:
        c.follow(script)
    config = config_of(c)
    c.need_gpu("nvidia-device-plugin: Failed to initialize NVML: could not load NVML library")
    if "resources" not in c.mem:
        c.mem["resources"] = _start(c, config)
        c.mem["strategy"] = strategy_of(c.env, config)
    if config.sharing.kind == "mps":
        _mps(c, config)
    offered: dict[str, int] = c.mem["resources"]
    healthy = offered
    if len(c.gpus) < len(c.node.gpus):
        try:
            healthy = {**dict.fromkeys(offered, 0), **resources(c.gpus, c.mem["strategy"], config)}
        except PluginError:
            healthy = dict.fromkeys(offered, 0)
    if c.node.plugin_uid != c.pod.uid or c.node.offered != offered or c.node.healthy != healthy:
        c.node.plugin_uid, c.node.offered, c.node.healthy = c.pod.uid, dict(offered), dict(healthy)
        c.node.changed()
    return Up()


def _start(c: Ctx, config: PluginConfig) -> dict[str, int]:
    host = f"{c.node.spec.kubelet_root}/device-plugins"
    c.need_mount(SOCKETS, "failed to dial /var/lib/kubelet/device-plugins/kubelet.sock", host=host, writable=True)
    lists = set((c.env.get("DEVICE_LIST_STRATEGY") or "envvar").split(","))
    if lists - LISTS:
        raise Crash(f"invalid device list strategy: {', '.join(sorted(lists - LISTS))}")
    if (c.env.get("DEVICE_ID_STRATEGY") or "uuid") not in ("uuid", "index"):
        raise Crash(f"invalid --device-id-strategy option: {c.env['DEVICE_ID_STRATEGY']}")
    if lists & {"cdi-annotations", "cdi-cri"}:
        inside = c.env.get("DRIVER_ROOT_CTR_PATH") or c.env.get("CONTAINER_DRIVER_ROOT") or "/driver-root"
        place = c.need_mount(
            inside, "CDI specifications cannot be made without the driver's files", propagation="HostToContainer"
        )
        wanted = "/" if c.node.host_driver else c.node.driver_root
        if place.path != wanted:
            raise Crash(
                f"unable to create CDI spec file: failed to locate libcuda.so below {inside} (host path "
                f"{place.path}, the driver is at {wanted or 'no place'})"
            )
        c.need_mount("/var/run/cdi", "CDI specifications cannot be written", host="/var/run/cdi", writable=True)
        c.write("/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json", "{}")
    c.need_privileged("error getting devices: MIG capabilities and device nodes cannot be read")
    try:
        counts = resources(c.gpus, strategy_of(c.env, config), config)
    except PluginError as error:
        if c.env.get("FAIL_ON_INIT_ERROR", "true").lower() == "true":
            raise Crash(f"error starting plugins: error getting plugins: {error}") from None
        raise Wait(f"If this is not a GPU node, you should set up a toleration or nodeSelector: {error}", 60) from None
    if config.sharing.kind == "mps":
        root = c.need_env("MPS_ROOT", "using MPS requires --mps-root to be specified")
        c.need_mount("/mps", "the MPS daemon's pipes cannot be seen", host=root)
        c.need_mount("/dev/shm", "MPS clients would have no shared memory", host=f"{root}/shm")
    c.spend("Registered device plugin with kubelet", 2)
    return counts


def _mps(c: Ctx, config: PluginConfig) -> None:
    missing = [name for name in config.sharing.replicas if name in c.mem["resources"] and name not in c.node.mps_ready]
    if missing:
        if c.node.plugin_uid == c.pod.uid and c.node.offered:
            stop(c)
        raise Wait(f"error waiting for MPS daemon: MPS daemon for {missing[0]} is not ready", 30)


def stop(c: Ctx) -> None:
    """The kubelet keeps the capacity of a plugin that went, and nothing of it can be allocated."""
    if c.node.plugin_uid == c.pod.uid:
        c.node.plugin_uid = ""
        c.node.healthy = dict.fromkeys(c.node.offered, 0)
        c.node.changed()


PROGRAM = Program(step, stop=stop)
CONFIG_MANAGER = Program(config_manager)
