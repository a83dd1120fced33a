# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate authority for one testbed cluster, and the key that signs service account tokens.

Uses the package cryptography, which ansible-core itself depends on.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)


def _write_secret(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Make a private key and write it to ``path``. Elliptic curves, because an RSA key costs a tenth of a second."""
    key = ec.generate_private_key(ec.SECP256R1())
    _write_secret(
        path,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ),
    )
    return key


def _name(common: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    # An hour back, for a clock that is not quite right.
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + LIFETIME)
    )


class Authority:
    """The certificate authority in ``folder``: made at the first use, read again later."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self.private_key = folder / "ca.key"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.certificate.exists():
            self._create()
        self._certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        key = serialization.load_pem_private_key(self.private_key.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def _create(self) -> None:
        key = write_key(self.private_key)
        name = _name("gpufleet-testbed-ca", ())
        certificate = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )  # fmt: skip
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, common: str, groups: Sequence[str] = (), addresses: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """A certificate and its key in files of the folder, made unless they are there: ``NAME.crt``, ``NAME.key``.

        With ``addresses`` (IP addresses and DNS names) it is a server's, else that of user ``common`` in ``groups``.
        """
        certificate, private_key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if certificate.exists():
            return certificate, private_key
        key = write_key(private_key)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if addresses else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_name(common, groups), self._certificate.subject, key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        if addresses:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(address) for address in addresses]), critical=False
            )
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return certificate, private_key


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)
