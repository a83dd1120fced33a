# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How daemons reach registries, on image trees. Real ones: tests/integration/hosts/test_image_pulls.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._files import Files
from ansible_collections.gpufleet.nvidia.plugins.module_utils._host._root import Root
from ansible_collections.gpufleet.nvidia.plugins.module_utils._plan import REDACTED, Failure
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._find import Target
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._pulls import (
    MARK,
    Pulls,
    differs,
    plan,
    said_by_others,
    stops,
    variables,
    wish,
)
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._reader import FilesReader
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._rootless import Person
from ansible_collections.gpufleet.nvidia.plugins.module_utils._runtimes._run import _shown
from ansible_collections.gpufleet.nvidia.tests.testbed.pki import Authority
from ansible_collections.gpufleet.nvidia.tests.unit.module_utils.runtimes.test_trees import (
    Image,
    containerd,
    crio,
    docker,
    k3s,
    microk8s,
)

pytestmark = pytest.mark.rows("P046")
PROXY = "http://proxy.example.com:3128"
DROP_IN = "etc/systemd/system/{0}.service.d/gpufleet-image-pulls.conf"
UNIT = "[Service]\nEnvironmentFile=-/etc/default/docker\nEnvironmentFile=-/etc/sysconfig/%N\n"
SETS = '[Service]\nEnvironment="HTTPS_PROXY=http://other.example.com:1"\n'


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path / "root")


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def files(image: Image) -> Files:
    return Files(Root(str(image.root)))


def refused(image: Image, **pulls: Any) -> str:
    """The message of a run that is refused, and that changed nothing."""
    before = image.state()
    with pytest.raises(Failure) as caught:
        image.run(image_pulls=pulls)
    assert image.state() == before
    assert caught.value.result.changed is False
    return caught.value.msg


@pytest.mark.parametrize(
    ("make", "unit"),
    [
        (containerd, "containerd"),
        (docker, "docker"),
        (crio, "crio"),
        (k3s, "k3s"),
        (microk8s, "snap.microk8s.daemon-containerd"),
    ],
)
def test_each_runtimes_unit_gets_it_and_gives_it_back(image: Image, ca: Authority, make: Any, unit: str) -> None:
    make(image)
    image.put("ca.pem", ca.certificate.read_text() + ca.private_key.read_text())
    before = image.state()
    pulls = {"proxy": PROXY, "no_proxy": [".example.com", "192.0.2.0/24"], "ca_file": "/ca.pem"}
    planned = image.run(check=True, image_pulls=pulls)
    assert image.state() == before
    done = image.run(image_pulls=pulls)
    assert [one.id for one in done.result.plan] == [one.id for one in planned.result.plan]
    place = f"etc/gpufleet/{unit}.service"
    assert image.text(DROP_IN.format(unit)).endswith(f"[Service]\nEnvironmentFile=-/{place}/environment\n")
    folders = f"/{place}/certificates:/etc/ssl/certs:/etc/pki/tls/certs"
    lines = image.text(f"{place}/environment").splitlines()[1:]
    assert lines[:-1] == [
        f'HTTP_PROXY="{PROXY}"',
        f'HTTPS_PROXY="{PROXY}"',
        'NO_PROXY=".example.com,192.0.2.0/24"',
        f'SSL_CERT_DIR="{folders}"',
    ]
    assert (image.root / f"{place}/environment").stat().st_mode & 0o777 == 0o600
    # The key beside the certificate stays where it is.
    assert image.text(f"{place}/certificates/image-pulls.crt") == ca.certificate.read_text()
    assert image.run(image_pulls=pulls).result.plan == []
    assert image.run().result.plan == []
    fewer = image.run(image_pulls={"no_proxy": [".example.com"]})
    assert [(one.verb, one.target) for one in fewer.result.plan] == [
        ("update", f"/{place}/environment"),
        ("delete", f"/{place}/certificates/image-pulls.crt"),
    ]
    gone = image.run(image_pulls={})
    assert [one.target for one in gone.result.plan] == [f"/{DROP_IN.format(unit)}", f"/{place}/environment"]
    image.run(image_pulls=pulls)
    image.run(state="absent")
    assert image.state() == before


def test_nothing_is_written_unless_it_is_asked_for(image: Image) -> None:
    docker(image)
    image.run()
    before = image.state()
    for nothing in (
        {},
        {"proxy": "", "no_proxy": [], "ca_file": ""},
        {"proxy": None, "no_proxy": None, "ca_file": None},
    ):
        assert image.run(image_pulls=nothing).result.plan == []
    assert image.state() == before


@pytest.mark.parametrize(
    "proxy",
    [
        "proxy.example.com:3128",
        "ftp://proxy.example.com",
        "http://proxy.example.com:70000",
        "http://proxy.example.com:0",
        "http://proxy.example.com:3128/path",
        "http://user:hunter2 @proxy.example.com",
        "http://user:hunter2@@proxy.example.com",
        "http://user:hunter2%zz@proxy.example.com",
        "http://:hunter2@proxy.example.com",
        'http://user:hunter2"@proxy.example.com',
        "http://user:hunter2\\@proxy.example.com",
        "http://proxy.example.com:3128\nA=hunter2",
        "http://proxy.example.com:3128\n",
        "http://-proxy.example.com",
        "http://proxy..example.com",
        "http://...",
    ],
)
def test_what_is_no_proxy_is_refused_and_not_told(image: Image, proxy: str) -> None:
    docker(image)
    told = refused(image, proxy=proxy)
    assert "image_pulls.proxy: is no proxy; allowed are addresses like http://proxy.example.com:3128" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    "proxy",
    [
        "http://proxy.example.com",
        "https://proxy.example.com:3128/",
        "socks5://192.0.2.1:1080",
        "http://[2001:db8::1]:3128",
        "http://user@proxy.example.com:3128",
        "http://user:p%40ss$word!@proxy.example.com:65535",
    ],
)
def test_proxies_that_daemons_know_are_taken(image: Image, proxy: str) -> None:
    assert wish({"proxy": proxy}, files(image)) == (Pulls(proxy), [])


@pytest.mark.parametrize("one", ["a b", "a,b", "a\n", "", 'a"', "http://u:hunter2@a"])
def test_what_cannot_be_an_exception_is_refused(image: Image, one: str) -> None:
    docker(image)
    told = refused(image, no_proxy=["a.example.com", one])
    assert "image_pulls.no_proxy[1]: cannot be reached without a proxy" in told
    assert "hunter2" not in told


def test_a_file_without_certificates_is_refused(image: Image, ca: Authority) -> None:
    docker(image)
    image.put("key.pem", ca.private_key.read_text())
    broken = ca.certificate.read_text().splitlines()
    image.put("broken.pem", "\n".join([broken[0], "AAAA", broken[-1]]))
    (image.root / "folder.pem").mkdir()
    for path in ("/none.pem", "/key.pem", "/broken.pem", "/folder.pem", "none.pem"):
        assert f"image_pulls.ca_file: '{path}' is no file of certificates" in refused(image, ca_file=path)


def test_passwords_are_in_no_result_and_no_diff(image: Image) -> None:
    docker(image)
    first = image.run(image_pulls={"proxy": "http://user:hunter2@proxy.example.com"})
    other = image.run(image_pulls={"proxy": "http://user:hunter3@proxy.example.com"})
    shown = json.dumps([first.as_dict(), first.diff, other.as_dict(), other.diff])
    assert "http://(redacted)@proxy.example.com" in shown
    assert "hunter" not in shown
    assert 'PROXY="http://user:hunter3@proxy' in image.text("etc/gpufleet/docker.service/environment")
    back = image.run(state="absent")
    assert "hunter" not in json.dumps([back.as_dict(), back.diff])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/systemd/system/docker.service.d/http-proxy.conf", SETS),
        ("etc/sysconfig/docker", "HTTPS_PROXY=http://other.example.com:1\n"),
        ("etc/systemd/system/docker.service.d/http-proxy.conf", "[Service]\nEnvironment=A=b \\\n  https_proxy=x\n"),
        ("run/systemd/system/docker.service.d/a.conf", SETS),
        ("etc/systemd/system/service.d/all.conf", SETS),
        ("etc/systemd/system/docker.service", SETS),
        ("etc/default/docker", "# a note\nHTTPS_PROXY='http://other.example.com:1'\n"),
        ("etc/docker/daemon.json", '{"proxies": {"https-proxy": "http://other.example.com:1"}}\n'),
    ],
)
def test_what_somebody_else_sets_is_told_and_not_overwritten(image: Image, path: str, text: str) -> None:
    docker(image)
    image.put("usr/lib/systemd/system/docker.service", UNIT)
    image.put(path, text)
    told = refused(image, proxy=PROXY)
    assert f"/{path}: sets " in told
    assert "other.example.com" not in told  # a password may be in what it sets
    # The same may be said twice.
    image.put(path, text.replace("http://other.example.com:1", PROXY).replace("=x", f"={PROXY}"))
    image.run(image_pulls={"proxy": PROXY})


def test_what_containerd_of_k3s_gets_by_a_name_of_its_own_is_seen(image: Image) -> None:
    k3s(image)
    image.put("etc/systemd/system/k3s.service.d/a.conf", "[Service]\nEnvironment=CONTAINERD_HTTPS_PROXY=x\n")
    assert "sets CONTAINERD_HTTPS_PROXY for k3s.service" in refused(image, proxy=PROXY)


def test_a_file_of_our_name_that_is_not_ours_stays(image: Image) -> None:
    docker(image)
    image.put(DROP_IN.format("docker"), "[Service]\nNice=1\n")
    assert "is not of this module" in refused(image, proxy=PROXY)


def test_our_files_that_somebody_edited_go_all_the_same(image: Image) -> None:
    docker(image)
    before = image.state()
    image.run(image_pulls={"proxy": PROXY})
    for path in (DROP_IN.format("docker"), "etc/gpufleet/docker.service/environment"):
        (image.root / path).write_text(image.text(path) + "# a note\n")
    image.run(state="absent")
    assert image.state() == before


def test_the_last_word_of_the_units_files_counts(image: Image) -> None:
    image.put(
        "usr/lib/systemd/system/a.service", "[Service]\nEnvironment=HTTP_PROXY=1 NO_PROXY=2\nEnvironmentFile=/b\n"
    )
    image.put("lib/systemd/system/a.service", "[Service]\nEnvironment=B=of-a-file-that-is-not-read\n")
    image.put("b", 'HTTPS_PROXY="3"\nNO_PROXY=4\n')
    image.put("usr/lib/systemd/system/a.service.d/50.conf", "[Service]\nEnvironment=HTTP_PROXY=5\n")
    image.put(
        "etc/systemd/system/a.service.d/50.conf", "[Service]\n# a note \\\nEnvironment=C=7\n;Environment=HTTP_PROXY=6\n"
    )
    reader = FilesReader(files(image))
    own, changed = "/usr/lib/systemd/system/a.service", "/etc/systemd/system/a.service.d/50.conf"
    assert said_by_others(reader, "a.service") == {
        "HTTP_PROXY": (own, "1"), "NO_PROXY": ("/b", "4"), "HTTPS_PROXY": ("/b", "3"), "C": (changed, "7")
    }  # fmt: skip
    image.put(
        "etc/systemd/system/a.service.d/60.conf", "[Service]\nEnvironment=\nEnvironmentFile=\nEnvironment='A=%%'\n"
    )
    assert said_by_others(reader, "a.service") == {"A": ("/etc/systemd/system/a.service.d/60.conf", "%")}


def test_what_no_unit_of_the_host_starts_is_told(image: Image) -> None:
    alice = Person("alice", 1000, 1000, "/home/alice")
    targets = {
        "docker@alice is": Target("docker", "/c", "", unit="docker.service", running=True, person=alice),
        "containerd is": Target("containerd", "/c", "", running=True, restart_command=("/bin/restart",)),
        "crio is": Target("crio", "/c", "", unit="../../etc/x.service", named=True),
        "podman has": Target("podman", "", "", unit="podman.service", running=True),
    }
    reader = FilesReader(files(image))
    for words, target in targets.items():
        found = plan(reader, target, Pulls(PROXY))
        severity = "info" if target.name == "podman" else "error" if target.named else "warning"
        assert [(one.severity, one.target) for one in found.findings] == [(severity, words.split()[0])]
        assert (found.changes, plan(reader, target, Pulls()).findings, plan(reader, target, None).findings) == (
            [],
            [],
            [],
        )
    assert plan(reader, Target("containerd", "/c", ""), Pulls(PROXY)).findings == []  # nothing starts it


def test_a_daemon_is_started_anew_for_a_difference_alone() -> None:
    wanted = variables("a.service", Pulls(PROXY, ("b",), "certificates"))
    running = {"PATH": "/bin", **wanted}
    assert differs(running, wanted) == []
    assert differs({**running, "NO_PROXY": "c"}, wanted) == ["NO_PROXY"]
    # The same folder with other certificates in it, and a variable that is not wanted any more.
    assert differs(running, variables("a.service", Pulls(PROXY, ("b",), "others"))) == [MARK]
    assert differs(running, variables("a.service", Pulls(PROXY, (), "certificates"))) == [MARK]
    assert differs(running, {}) == [MARK]
    assert differs({"HTTPS_PROXY": "of somebody else"}, {}) == []


def test_containers_are_ended_only_by_whoever_accepts_it() -> None:
    assert stops("docker", 0, ()) == []
    assert [one.severity for one in stops("docker", 2, ())] == ["error"]
    assert [one.severity for one in stops("docker", 2, ("restart_stops_containers",))] == ["warning"]


def test_a_password_that_somebody_else_wrote_is_not_shown() -> None:
    for written in ("u:a/b", "u:secret", "u:a:b"):
        assert _shown(f'p = "http://{written}@192.0.2.1:3128"').count(REDACTED) == 1
        assert written not in _shown(f'p = "http://{written}@192.0.2.1:3128"')
    for line in (
        "HTTPS_PROXY=u:secret@192.0.2.1:3128",
        '"https-proxy": "u:secret@192.0.2.1"',
        "http_proxy = 'secret@a'",
    ):
        assert _shown(line).count(REDACTED) == 1
        assert "secret" not in _shown(line)
    for plain in ('p = "http://192.0.2.1:3128"', "HTTPS_PROXY=192.0.2.1:3128", "NO_PROXY=.example.com,192.0.2.1"):
        assert _shown(plain) == plain


def test_the_tail_of_a_password_with_an_at_sign_is_not_shown_either() -> None:
    told = {
        'http_proxy = "user:p@ss@host:3128"': f'http_proxy = "{REDACTED}@host:3128"',
        "https_proxy: 'p@s\"s w@host'": f"https_proxy: '{REDACTED}@host'",
        "HTTPS_PROXY=u:p@s'@host": f"HTTPS_PROXY={REDACTED}@host",
        "p = http://u:p@ss@host": f"p = http://{REDACTED}@host",
        '"a": "http://u:p@ss@host", "b": "http://c:d@e"': f'"a": "http://{REDACTED}@host", "b": "http://{REDACTED}@e"',
        r'Environment="ALL_PROXY=\"u:p@h\""': rf'Environment="ALL_PROXY=\"{REDACTED}@h\""',
        r"{\"https-proxy\": \"u:p@s@h\"}": rf"{{\"https-proxy\": \"{REDACTED}@h\"}}",
        "http_proxy = http://u:p@ss@host": f"http_proxy = http://{REDACTED}@host",
    }
    assert {line: _shown(line) for line in told} == told
    for plain in (
        "http_proxy =\nmail = root@host\n",
        "http_proxy =\nroot@host\n",
        '"proxy":"","mail":"root@host"',
        "proxy = ''\nmail = 'root@host'",
    ):
        assert _shown(plain) == plain
