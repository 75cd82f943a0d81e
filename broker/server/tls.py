"""TLS settings of listeners. Certificates are read again on SIGHUP; open connections keep theirs.
Knows no protocol and no principal.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog.broker.server.certificate_end import certificate_end_us

if TYPE_CHECKING:
    from braidlog.broker.config.settings import TlsConfig

CERTIFICATE_MODES: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
DAY_US: Final = 86_400_000_000
# Fewer days than these are a warning: authorities renew certificates of 90 days after 60.
CERTIFICATE_WARNING_DAYS: Final = 14
# Reasons of the library for a file without PEM text.
NOT_PEM: Final = (None, "NO_START_LINE", "NO_CERTIFICATE_OR_CRL_FOUND")


class UnusableFile(ValueError):
    """A file of a listener's TLS settings cannot be used."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path

    def setting(self, config: TlsConfig) -> str:
        """Return the name of the setting that has the file."""
        names = ("certificate_file", "key_file", "client_ca_file")
        return next(name for name in names if getattr(config, name) == self.path)


class TlsSettings:
    """The TLS settings of a listener, with certificates from files that a reload reads again."""

    def __init__(self, config: TlsConfig, protocols: Iterable[str] = ()) -> None:
        """Offer `protocols` by ALPN (RFC 7301). Raises ValueError, with a single line, and
        UnusableFile.
        """
        self._config = config
        self._protocols = list(protocols)
        self.context = self._load()
        # The last moment of the certificate in use, in microseconds since 1970, if known.
        self.certificate_end_us = self._certificate_end_us()

    def reload(self) -> None:
        """Read the files again for new connections. Raises ValueError, and then changes nothing."""
        self.context = self._load()
        self.certificate_end_us = self._certificate_end_us()

    def days_left(self, now_us: int) -> int | None:
        """Return the whole days until the certificate in use ends, negative afterwards; None if the
        end is unknown.
        """
        end_us = self.certificate_end_us
        return None if end_us is None else (end_us - now_us) // DAY_US

    def _certificate_end_us(self) -> int | None:
        text = Path(self._config.certificate_file).read_text("utf-8", "replace")
        return certificate_end_us(text)

    def _load(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        if self._protocols:
            context.set_alpn_protocols(self._protocols)
        certificate, key = config.certificate_file, config.key_file or config.certificate_file
        for path in (certificate, key, config.client_ca_file):
            _check_readable(path)
        try:
            context.load_cert_chain(certificate, key, partial(_refuse_password, key))
        except ssl.SSLError as error:
            raise _unusable(certificate, key, error) from error
        if config.client_ca_file is not None:
            _load_certificates(context, config.client_ca_file)
        if config.client_certificates != "none" and config.client_ca_file is None:
            raise ValueError("client_certificates needs client_ca_file: who signed them")
        context.verify_mode = CERTIFICATE_MODES[config.client_certificates]
        return context


def _check_readable(path: str | None) -> None:
    """Check that a file can be read. Raises UnusableFile.

    The library's errors name no file, though it reads several.
    """
    if path is None:
        return
    try:
        with open(path, "rb") as file:
            file.read(1)
    except OSError as error:
        raise UnusableFile(path, str(error.strerror)) from error


def _load_certificates(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise UnusableFile(path, f"no certificate: {_reason(error)}") from error


def _unusable(certificate: str, key: str, error: ssl.SSLError) -> UnusableFile:
    """Return the error about the unusable file of the two."""
    try:
        _load_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate)
    except UnusableFile as no_certificate:
        return no_certificate
    of = "" if key == certificate else f" of the certificate {certificate}"
    return UnusableFile(key, f"no private key{of}: {_reason(error)}")


def _refuse_password(key: str) -> str:
    """Refuse an encrypted key; without this the library asks at the terminal. Raises
    UnusableFile.
    """
    raise UnusableFile(key, "the private key is encrypted, expected a key without a password")


def _reason(error: ssl.SSLError) -> str:
    """Return the library's reason; a file of other text has no reason, or a long one."""
    return "not PEM" if error.reason in NOT_PEM else error.reason
