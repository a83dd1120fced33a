# Copyright: (c) 2026, gpufleet.nvidia contributors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the certificates of a bundle end, read from their DER form: no further package is needed for that."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timezone
from typing import List, Tuple

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class BadCertificate(ValueError):
    """Not a PEM bundle of X.509 certificates."""


def ends(bundle: str) -> List[float]:
    """``notAfter`` of each certificate of a PEM bundle that is base64-coded once more (``caBundle``), in epoch seconds.

    Raises BadCertificate.
    """
    try:
        text = base64.b64decode(bundle, validate=True).decode("ascii")
        parts = [part.split(_END, 1)[0] for part in text.split(_BEGIN)[1:]]
        found = [_not_after(base64.b64decode("".join(part.split()))) for part in parts]
    except (binascii.Error, UnicodeDecodeError, ValueError, IndexError) as error:
        raise BadCertificate(f"cannot be read: {error}") from error
    if not found:
        raise BadCertificate("holds no certificate")
    return found


def _not_after(der: bytes) -> float:
    """Certificate > tbsCertificate > [version], serial, algorithm, issuer, validity > notBefore, notAfter."""
    _tag, certificate, _rest = _element(der)
    _tag, body, _rest = _element(certificate)
    tag, _content, rest = _element(body)
    for _part in range(3 if tag == 0xA0 else 2):
        _tag, _content, rest = _element(rest)
    _tag, validity, _rest = _element(rest)
    _tag, _before, rest = _element(validity)
    tag, after, _rest = _element(rest)
    return _moment(tag, after.decode("ascii"))


def _moment(tag: int, text: str) -> float:
    """UTCTime has two digits for the year (RFC 5280: below 50 is 20xx), GeneralizedTime four."""
    if tag == 0x17:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()


def _element(data: bytes) -> Tuple[int, bytes, bytes]:
    """Tag, content, and what follows."""
    tag, size, start = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if start + size > len(data):
        raise ValueError("it is cut off")
    return tag, data[start : start + size], data[start + size :]
