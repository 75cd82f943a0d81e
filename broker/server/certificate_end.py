"""The end of a certificate's validity, read from its DER form (RFC 5280, section 4.1).

The library that issues and checks certificates takes 11 MB of memory; Python's `ssl` tells the
dates of a peer's certificate only. Knows no file and no listener.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Final

# Three kinds of blocks hold a certificate; the last adds fields behind it.
PEM: Final = re.compile(
    "-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\\s]*)-----END", re.ASCII
)
VERSION_TAG: Final = 0xA0
UTC_TIME_TAG: Final = 0x17  # A year of two digits: 50 to 99 are of the last century.
TIME: Final = re.compile("[0-9]{14}Z", re.ASCII)
LONG_LENGTH: Final = 0x80
FIELDS_BEFORE_VALIDITY: Final = 3  # Serial number, signature algorithm, issuer.
MICROSECONDS: Final = 1_000_000


def certificate_end_us(text: str) -> int | None:
    """Return the last moment of the first certificate in a PEM text, in microseconds since 1970;
    None if the text has no certificate, or the date has another form than the RFC demands. The
    certificate is one that OpenSSL has read.
    """
    block = PEM.search(text)
    return None if block is None else _end_us(base64.b64decode(block[1]))


def _end_us(der: bytes) -> int | None:
    _, pos, _ = _element(der, 0)  # Certificate
    _, pos, _ = _element(der, pos)  # TBSCertificate
    tag, _, end = _element(der, pos)
    if tag == VERSION_TAG:
        pos = end
    for _ in range(FIELDS_BEFORE_VALIDITY):
        _, _, pos = _element(der, pos)
    _, pos, _ = _element(der, pos)  # Validity
    _, _, pos = _element(der, pos)  # notBefore
    tag, pos, end = _element(der, pos)
    text = der[pos:end].decode("ascii")
    if tag == UTC_TIME_TAG:
        text = ("19" if text >= "5" else "20") + text
    if TIME.fullmatch(text) is None:
        return None
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * MICROSECONDS


def _element(der: bytes, pos: int) -> tuple[int, int, int]:
    """Return tag, start and end of the content of the element at `pos`."""
    tag, length = der[pos], der[pos + 1]
    pos += 2
    if length & LONG_LENGTH:
        size = length & ~LONG_LENGTH
        length = int.from_bytes(der[pos : pos + size], "big")
        pos += size
    return tag, pos, pos + length
