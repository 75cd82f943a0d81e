"""Certificates of an authority for a single test run, and clients that trust the authority."""

import ssl
from functools import cache

import trio
import trustme

from braidlog.broker.config.settings import TlsConfig
from braidlog.broker.server.tls import TlsSettings


@cache
def authority():
    return trustme.CA()


@cache
def other_authority():
    return trustme.CA()


def write_files(folder, *names):
    """Write the server's certificate and key in a file, and the authority's; return their paths."""
    server = authority().issue_cert(*(names or ("localhost", "127.0.0.1")))
    server.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority().cert_pem.write_to_path(folder / "authority.pem")
    return str(folder / "server.pem"), str(folder / "authority.pem")


def tls_settings(folder, clients="none"):
    certificate, ca = write_files(folder)
    return TlsSettings(
        TlsConfig(certificate_file=certificate, client_ca_file=ca, client_certificates=clients)
    )


def client_context(*, common_name=None, signed_by=None):
    """Return a client's TLS context, with its own certificate if `common_name` is given."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    if common_name is not None:
        (signed_by or authority()).issue_cert(
            "client@test", common_name=common_name
        ).configure_cert(context)
    return context


async def open_tls(address, context=None):
    """Return a client's encrypted stream after the handshake."""
    stream = await trio.open_tcp_stream(*address)
    encrypted = trio.SSLStream(
        stream,
        context or client_context(),
        server_hostname="127.0.0.1",
        https_compatible=True,
    )
    await encrypted.do_handshake()
    return encrypted
