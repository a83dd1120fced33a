# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From options to a server, a connection pool with its TLS, and the credentials of each request.

Plain credentials (certificates, a token, a password; in a kubeconfig, in options, or a pod's own) are read here, which
takes milliseconds. Everything else (exec plugins, OIDC, proxies, several kubeconfigs) is left to the ``kubernetes``
package, whose import alone takes half a second. Both ways give the same.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
import time
import warnings
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from ._connection import KubeError, MissingPackage

Auth = Callable[[], Optional[str]]

_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_POD = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_AGE = 60.0  # seconds after which a pod's token is read again: the kubelet renews the file

_CLUSTER_KEYS = {
    "server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name",
}  # fmt: skip
_USER_KEYS = {
    "client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "username", "password",
}  # fmt: skip


class Credentials(NamedTuple):
    """``auth`` gives the value of the Authorization header of the next request, None for none."""

    server: str
    auth: Auth
    pool: Any


def credentials(options: Mapping[str, Any]) -> Credentials:
    """What ``Connection.open`` needs; its docstring lists the options. Raises ``MissingPackage`` or ``KubeError``."""
    return plain(options) or packaged(options)


# --- plain ----------------------------------------------------------------------------------------------------------


def plain(options: Mapping[str, Any]) -> Optional[Credentials]:
    """The credentials, or None where the package is needed, or has to say what is wrong."""
    if options.get("proxy") or any(os.environ.get(name) for name in _PROXIES):
        return None
    try:
        import urllib3
    except ImportError:
        return None
    settings = _from_options(_from_kubeconfig(options) if not options.get("host") else _given(options), options)
    if settings is None:
        return None
    try:
        context = _tls(settings)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise KubeError(f"a certificate or key of the connection cannot be used: {error}") from None
    names: Dict[str, Any] = {"server_hostname": settings["tls-server-name"]} if settings.get("tls-server-name") else {}
    if context.verify_mode == ssl.CERT_NONE:
        _silence()
        names["assert_hostname"] = False
    return Credentials(
        settings["server"], _auth(settings), urllib3.PoolManager(ssl_context=context, maxsize=10, **names)
    )


def _given(options: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """A host from options needs no kubeconfig, but may be beside one."""
    return _from_kubeconfig(options) if options.get("kubeconfig") else {}


def _from_kubeconfig(options: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The entries of the chosen cluster and user in one mapping, paths absolute; None if that is not all there is."""
    source, folder = options.get("kubeconfig"), ""
    if not source:
        source = os.environ.get("KUBECONFIG") or "~/.kube/config"
        if not os.environ.get("KUBECONFIG") and not os.path.exists(os.path.expanduser(source)):
            return _from_pod()
    try:
        if not isinstance(source, Mapping):
            import yaml

            file = os.path.expanduser(str(source))
            folder = os.path.dirname(os.path.abspath(file))
            with open(file, encoding="utf-8") as stream:
                source = yaml.safe_load(stream)
        context = _entry(source, "contexts", str(options.get("context") or source["current-context"]))["context"]
        cluster = _entry(source, "clusters", str(context["cluster"]))["cluster"]
        user = _entry(source, "users", str(context["user"]))["user"] or {}
    except (ImportError, OSError, ValueError, LookupError, TypeError, AttributeError, StopIteration):
        return None
    if set(cluster) - _CLUSTER_KEYS or set(user) - _USER_KEYS or not cluster.get("server"):
        return None
    found = {**cluster, **user}
    for name in ("certificate-authority", "client-certificate", "client-key"):
        if found.get(name):
            found[name] = os.path.join(folder, os.path.expanduser(str(found[name])))
    return found


def _entry(config: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(item for item in config[section] if item["name"] == name)
    return found


def _from_pod() -> Optional[Dict[str, Any]]:
    """The service account of the pod that this runs in."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not os.path.exists(f"{_POD}/token"):
        return None
    name = f"[{host}]" if ":" in host else host
    return {
        "server": f"https://{name}:{port}",
        "certificate-authority": f"{_POD}/ca.crt",
        "token-file": f"{_POD}/token",
    }


def _from_options(found: Optional[Dict[str, Any]], options: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """Single options win over the kubeconfig."""
    if found is None:
        return None
    names = {"host": "server", "api_key": "token", "username": "username", "password": "password"}
    names.update(ca_cert="certificate-authority", client_cert="client-certificate", client_key="client-key")
    for option, name in names.items():
        if options.get(option) is not None:
            found[name] = os.path.expanduser(options[option]) if name in _PATHS else options[option]
            found.pop(name + "-data", None)
    if options.get("api_key"):
        found.pop("token-file", None)
    elif options.get("username"):
        found.update({"token": None, "token-file": None})
    if options.get("validate_certs") is False:  # true is the default, and no reason to overrule a kubeconfig
        found["insecure-skip-tls-verify"] = True
    return found


_PATHS = ("certificate-authority", "client-certificate", "client-key")


def _tls(settings: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif settings.get("certificate-authority-data"):
        context.load_verify_locations(cadata=_decoded(settings, "certificate-authority"))
    elif settings.get("certificate-authority"):
        context.load_verify_locations(settings["certificate-authority"])
    else:
        context.load_default_certs()
    if settings.get("client-certificate-data") or settings.get("client-certificate"):
        # OpenSSL reads these from a file only: it lies in a folder that nobody else may enter, and only for a moment.
        with tempfile.TemporaryDirectory() as folder:
            pair = os.path.join(folder, "pair.pem")
            with open(pair, "w", encoding="ascii") as file:
                file.write("\n".join(_decoded(settings, name) for name in ("client-certificate", "client-key")))
            context.load_cert_chain(pair, password=_no_password)
    return context


def _decoded(settings: Mapping[str, Any], name: str) -> str:
    data = settings.get(name + "-data")
    if data:
        return base64.b64decode(data).decode("ascii")
    if not settings.get(name):
        return ""
    with open(settings[name], encoding="ascii") as file:
        return file.read()


def _no_password() -> str:
    raise ValueError("the client key is encrypted with a password")


def _auth(settings: Mapping[str, Any]) -> Auth:
    if settings.get("token-file"):
        return _PodToken(settings["token-file"])
    if settings.get("token"):
        fixed = "Bearer " + str(settings["token"]).strip()
    elif settings.get("username") and settings.get("password") is not None:
        fixed = _basic(settings["username"], settings["password"])
    else:
        return lambda: None
    return lambda: fixed


class _PodToken:
    def __init__(self, path: str) -> None:
        self._path = path
        self._value, self._read = "", 0.0

    def __call__(self) -> str:
        if not self._value or time.monotonic() - self._read > _TOKEN_AGE:
            try:
                with open(self._path, encoding="ascii") as file:
                    self._value, self._read = "Bearer " + file.read().strip(), time.monotonic()
            except OSError as error:
                raise KubeError(f"the pod's service account token cannot be read: {error}") from None
        return self._value


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _silence() -> None:
    """Certificates are not checked because the user said so; saying it once is enough."""
    from urllib3.exceptions import InsecureRequestWarning

    warnings.simplefilter("ignore", InsecureRequestWarning)


# --- by the package -------------------------------------------------------------------------------------------------


def packaged(options: Mapping[str, Any]) -> Credentials:
    """The same by the ``kubernetes`` package."""
    config, pool = _configure(options)

    def auth() -> Optional[str]:
        # Asking for the key runs the package's hook that renews tokens of exec plugins and service accounts.
        key: Optional[str] = config.get_api_key_with_prefix("BearerToken")
        key = key or config.get_api_key_with_prefix("authorization")
        if not key and config.username and config.password is not None:
            key = _basic(config.username, config.password)
        return key

    return Credentials(str(config.host), auth, pool)


def _configure(options: Mapping[str, Any]) -> Tuple[Any, Any]:
    """The package's ``Configuration`` and the connection pool that it makes from it."""
    try:
        import yaml
        from kubernetes import config as loader
        from kubernetes.client.configuration import Configuration
        from kubernetes.client.rest import RESTClientObject
    except ImportError:
        import traceback

        raise MissingPackage(traceback.format_exc()) from None

    config = Configuration()
    kubeconfig, context, host = options.get("kubeconfig"), options.get("context"), options.get("host")
    try:
        if isinstance(kubeconfig, Mapping):
            loader.load_kube_config_from_dict(dict(kubeconfig), context=context, client_configuration=config)
        elif kubeconfig:
            loader.load_kube_config(os.path.expanduser(str(kubeconfig)), context=context, client_configuration=config)
        elif not host and _default_kubeconfig():
            loader.load_kube_config(context=context, client_configuration=config)
        elif not host:
            loader.load_incluster_config(client_configuration=config)
    except (
        loader.ConfigException,
        yaml.YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        # The last ones are what the package gives for a kubeconfig of the wrong shape.
        raise KubeError(_no_credentials(kubeconfig, error)) from None
    _override(config, options)
    config.retries = False  # one place decides what is sent again, and it is not the pool
    try:
        return config, RESTClientObject(config).pool_manager
    except OSError as error:
        raise KubeError(f"a certificate or key of the connection cannot be read: {error}") from None


def _override(config: Any, options: Mapping[str, Any]) -> None:
    """Single options win over the kubeconfig."""
    names = {"host": "host", "username": "username", "password": "password", "ca_cert": "ssl_ca_cert"}
    names.update(client_cert="cert_file", client_key="key_file", proxy="proxy")
    for option, attribute in names.items():
        if options.get(option) is not None:
            setattr(config, attribute, options[option])
    if options.get("api_key"):
        config.refresh_api_key_hook = None
        config.api_key = {"BearerToken": "Bearer " + str(options["api_key"]).strip()}
    elif options.get("username"):
        config.refresh_api_key_hook = None
        config.api_key = {}
    if options.get("validate_certs") is False:
        config.verify_ssl = False
    if not config.verify_ssl:
        _silence()


def _default_kubeconfig() -> bool:
    files = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return any(os.path.exists(os.path.expanduser(name)) for name in files.split(os.pathsep) if name)


def _no_credentials(kubeconfig: Any, error: Exception) -> str:
    first = str(error).strip().split("\n", maxsplit=1)[0]
    if isinstance(kubeconfig, str) and not os.path.exists(os.path.expanduser(kubeconfig)):
        return f"the kubeconfig {kubeconfig} does not exist on the machine that runs this module"
    if kubeconfig or _default_kubeconfig():
        return f"the kubeconfig cannot be used: {first}"
    return (
        "no cluster is given: set `kubeconfig` (or $KUBECONFIG), or `host` with `api_key`, or run inside a pod with a "
        f"service account ({first})"
    )
