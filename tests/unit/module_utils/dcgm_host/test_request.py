# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the exporter becomes files of its service, and wrong options are refused with their path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host import _request, _settings, _units
from ansible_collections.gpufleet.nvidia.plugins.module_utils._dcgm_host._units import Wanted
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import errors

DEFAULTS: dict[str, Any] = {
    "port": 9400, "listen_address": "127.0.0.1", "hostengine": "standalone", "hostengine_address": "localhost:5555",
    "program": "/usr/bin/dcgm-exporter", "container": None, "collect_interval": 30000, "settings": None,
    "web_config": None, "scrape_timeout": 60, "metrics": None, "accept": None,
}  # fmt: skip
HASH = "$2y$10$" + "a" * 53


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A host with the exporter and a certificate."""
    for path in ("usr/bin/dcgm-exporter", "etc/ssl/a.pem", "etc/ssl/a.key", "tmp/a.pem"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
        (tmp_path / path).chmod(0o755)
    return Files(Root(str(tmp_path)))


def ask(files: Files, dcgm: tuple[int, ...] = (4, 6, 0), **options: Any) -> _request.Request:
    return _request.read({**DEFAULTS, **options}, files, dcgm)


def sentences(request: _request.Request) -> list[str]:
    return [one.sentence() for one in errors(request.findings)]


def lines(request: _request.Request, path: str) -> list[str]:
    return request.files[path].splitlines()


@pytest.mark.rows("H088")
def test_the_exporter_goes_with_the_host_engine_and_has_no_rights(files: Files) -> None:
    request = ask(files)
    assert request.findings == []
    unit = lines(request, f"{_units.UNITS}/{_units.UNIT}")
    assert {"Wants=nvidia-dcgm.service", "PartOf=nvidia-dcgm.service", "CapabilityBoundingSet="} <= set(unit)
    assert "DCGM_REMOTE_HOSTENGINE_INFO=localhost:5555" in lines(request, _units.ENVIRONMENT)
    assert "DCGM_EXPORTER_KUBERNETES=false" in lines(request, _units.ENVIRONMENT)
    assert any("try-restart nvidia-dcgm.service" in line for line in lines(request, f"{_units.UNITS}/{_units.REFRESH}"))


def test_an_engine_inside_has_the_right_that_profiling_needs(files: Files) -> None:
    request = ask(files, hostengine="embedded")
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN" in lines(request, f"{_units.UNITS}/{_units.UNIT}")
    assert "ProtectSystem=full" in lines(request, f"{_units.UNITS}/{_units.UNIT}")  # its state and logs
    assert "REMOTE_HOSTENGINE" not in request.files[_units.ENVIRONMENT]
    assert "nvidia-dcgm.service" not in request.files[f"{_units.UNITS}/{_units.UNIT}"]


def test_another_hosts_engine_is_only_asked(files: Files) -> None:
    request = ask(files, hostengine_address="engine.example.com:5555")
    assert not request.wanted.local
    assert "nvidia-dcgm.service" not in request.files[f"{_units.UNITS}/{_units.UNIT}"]


@pytest.mark.rows("H087")
@pytest.mark.parametrize(
    ("engine", "devices", "words"),
    [
        ("docker", "auto", "--gpus all"),
        ("docker", "cdi", "--device nvidia.com/gpu=all"),
        ("podman", "auto", "--device nvidia.com/gpu=all"),
        ("podman", "gpus", "--gpus all"),
    ],
)
def test_a_container_gets_its_gpus(files: Files, engine: str, devices: str, words: str) -> None:
    image = "registry.example.com/dcgm-exporter:4.6.0-4.8.3-distroless"
    request = ask(files, container={"engine": engine, "image": image, "devices": devices}, program="/nowhere")
    assert request.findings == []
    start = next(line for line in lines(request, f"{_units.UNITS}/{_units.UNIT}") if line.startswith("ExecStart="))
    assert start.startswith(f"ExecStart=/usr/bin/{engine} run ")
    assert f" {words} " in start
    assert start.endswith(f" {image}")
    assert f"--volume {_units.COUNTERS}:{_units.COUNTERS}:ro" in start
    assert "SYS_ADMIN" not in start
    inside = ask(files, container={"engine": engine, "image": image}, hostengine="embedded")
    assert "--cap-add SYS_ADMIN" in inside.files[f"{_units.UNITS}/{_units.UNIT}"]


def test_the_image_of_the_newest_release_is_the_default(files: Files) -> None:
    assert ask(files, container={"engine": "docker"}).wanted.image.startswith("nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-")


@pytest.mark.rows("H090")
def test_tls_and_passwords_are_written_as_exporters_read_them(files: Files) -> None:
    web = {"cert_file": "/etc/ssl/a.pem", "key_file": "/etc/ssl/a.key", "basic_auth_users": {"prom": HASH}}
    request = ask(files, web_config=web)
    assert request.findings == []
    assert '"cert_file": "/etc/ssl/a.pem"' in request.files[_units.WEB]
    assert f'"prom": "{HASH}"' in request.files[_units.WEB]
    assert f"DCGM_EXPORTER_WEB_CONFIG_FILE={_units.WEB}" in lines(request, _units.ENVIRONMENT)
    assert _units.WEB not in ask(files).files


@pytest.mark.rows("H091")
def test_flags_by_name_become_variables(files: Files) -> None:
    request = ask(files, settings={"hpc-job-mapping-dir": "/run/gpu-jobs", "no-hostname": True, "devices": "g:0,1"})
    assert request.findings == []
    environment = lines(request, _units.ENVIRONMENT)
    assert "DCGM_HPC_JOB_MAPPING_DIR=/run/gpu-jobs" in environment
    assert "DCGM_EXPORTER_NO_HOSTNAME=true" in environment
    assert "DCGM_EXPORTER_DEVICES_STR=g:0,1" in environment
    contained = ask(files, settings={"hpc-job-mapping-dir": "/run/jobs"}, container={"engine": "docker"})
    assert "--volume /run/jobs:/run/jobs:ro" in contained.files[f"{_units.UNITS}/{_units.UNIT}"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"port": 0}, "port: 0; allowed are 1 to 65535"),
        ({"listen_address": "everywhere"}, "listen_address: 'everywhere' is no address"),
        ({"hostengine_address": "engine"}, "hostengine_address: 'engine' is no address of a host engine"),
        ({"hostengine_address": "a b:5555"}, "hostengine_address:"),
        ({"program": "/usr/bin/x; reboot"}, "is no absolute path of a program"),
        ({"program": "/usr/bin/none"}, "NVIDIA publishes no package of the exporter"),
        ({"container": {"engine": "docker", "image": "a b"}}, "container.image: 'a b' is no name of an image"),
        ({"container": {"engine": "docker", "image": "x:3.3.9-3.6.1"}}, "has DCGM 3.3, and the host engine is 4.6.0"),
        ({"collect_interval": 1}, "collect_interval: 1; allowed are 100 to 3600000"),
        ({"scrape_timeout": 0}, "scrape_timeout: 0"),
        ({"settings": {"no-hostnam": True}}, "Did you mean no-hostname?"),
        ({"settings": {"no-hostname": "perhaps"}}, "'perhaps'; allowed is true or false"),
        ({"settings": {"address": ":9"}}, "Use listen_address and port"),
        ({"settings": {"log-format": "xml"}}, "allowed is one of text, json"),
        ({"settings": {"hpc-job-mapping-dir": "jobs"}}, "allowed is an absolute path"),
        ({"settings": {"devices": "g:a"}}, "allowed is a choice of devices"),
        ({"settings": {"dump-directory": "/a\nb"}}, "settings.dump-directory"),
        ({"web_config": {"cert_file": "/etc/ssl/a.pem"}}, "needs cert_file and key_file"),
        ({"web_config": {"cert_file": "/etc/no", "key_file": "/etc/ssl/a.key"}}, "/etc/no is no file of this host"),
        ({"web_config": {"basic_auth_users": {"prom": "secret"}}}, "is no bcrypt hash"),
        ({"web_config": {"cert_file": "/tmp/a.pem", "key_file": "/etc/ssl/a.key"}}, "the service does not look"),
        ({"metrics": "x"}, "has not exactly three parts"),
    ],
)
def test_a_wrong_option_is_refused_by_its_path(files: Files, options: dict[str, Any], words: str) -> None:
    (said,) = sentences(ask(files, **options))
    assert words in said


def test_a_secret_is_in_no_finding(files: Files) -> None:
    said = sentences(ask(files, web_config={"basic_auth_users": {"prom": "hunter2"}}))
    assert "hunter2" not in "".join(said)


def test_bind_watch_wants_a_newer_dcgm(files: Files) -> None:
    settings = {"enable-gpu-bind-unbind-watch": True}
    assert sentences(ask(files, settings=settings)) == []
    assert "wants DCGM 4.5 or newer" in sentences(ask(files, dcgm=(4, 4, 2), settings=settings))[0]


@pytest.mark.parametrize(
    ("address", "listens"),
    [("0.0.0.0", "0.0.0.0:9400"), ("", ":9400"), ("::1", "[::1]:9400"), ("192.0.2.1", "192.0.2.1:9400")],
)
def test_addresses(files: Files, address: str, listens: str) -> None:
    assert ask(files, listen_address=address).wanted.address == listens


@pytest.mark.parametrize("text", ['a"b', "a$b", "a\\b", "a`b", "a b", "ä"])
def test_what_systemd_would_read_otherwise_is_quoted(text: str) -> None:
    wanted = Wanted(settings=(("X", text),))
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    expected = text if text == "ä" else f'"{escaped}"'
    assert f"X={expected}" in _units.environment_file(wanted).splitlines()
    # An engine of containers takes every letter as it is.
    contained = Wanted(container="docker", settings=(("X", text),))
    assert f"X={text}" in _units.environment_file(contained).splitlines()


def test_every_flag_has_a_variable_of_its_own() -> None:
    variables = [variable for variable, _allowed in _settings.FLAGS.values()]
    assert len(set(variables)) == len(variables)
    assert not set(_settings.FLAGS) & set(_settings.OPTIONS)
    assert os.path.isabs(_units.COUNTERS)
