"""The end of a certificate's validity, compared with the library that issued the certificate."""

import base64
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from braidlog.broker.server.certificate_end import certificate_end_us
from tests.broker.server.certificates import authority

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(end: datetime, name: str = "broker") -> x509.Certificate:
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(named, named, KEY.public_key(), 1)
    builder = builder.not_valid_before(datetime(1950, 1, 1, tzinfo=UTC)).not_valid_after(end)
    return builder.sign(KEY, hashes.SHA256())


@pytest.mark.parametrize("year", [1951, 1999, 2000, 2026, 2049, 2050, 9999])
def test_the_end_is_that_of_the_library(year):
    end = datetime(year, 12, 31, 23, 59, 58, tzinfo=UTC)
    text = certificate(end).public_bytes(Encoding.PEM).decode()
    assert certificate_end_us(f"a comment\n{text}") == int(end.timestamp()) * 1_000_000


def test_the_first_certificate_of_a_file_counts_also_behind_a_key():
    served = authority().issue_cert("localhost")
    text = served.private_key_and_cert_chain_pem.bytes().decode()
    leaf = x509.load_pem_x509_certificates(text.encode())[0]
    assert certificate_end_us(text) == int(leaf.not_valid_after_utc.timestamp()) * 1_000_000


@pytest.mark.parametrize("kind", ["X509 CERTIFICATE", "TRUSTED CERTIFICATE"])
def test_other_names_of_the_block_are_read(kind):
    end = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    text = certificate(end).public_bytes(Encoding.PEM).decode()
    renamed = text.replace("CERTIFICATE", kind)
    assert certificate_end_us(renamed) == int(end.timestamp()) * 1_000_000


def test_a_text_without_a_certificate_has_no_end():
    assert (
        certificate_end_us("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----") is None
    )


def test_a_date_of_another_form_is_unknown():
    text = certificate(datetime(2030, 1, 1, tzinfo=UTC)).public_bytes(Encoding.DER)
    assert text.count(b"300101000000Z") == 1
    changed = text.replace(b"300101000000Z", b"3001010000+01")
    body = base64.b64encode(changed).decode()
    block = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    assert certificate_end_us(block) is None
