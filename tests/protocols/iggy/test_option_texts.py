"""Sizes and lengths of time as texts.

Every expected number is the answer of the crates that apache/iggy uses (`byte-unit` 5.2.5 and
`humantime` 2.4.0, each in a small Rust program around Iggy's own `FromStr`). None: refused there.
"""

import pytest

from braidlog.protocols.iggy.option_texts import byte_size, expiry_us, topic_size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
U64_MAX = (1 << 64) - 1
SIZES = {
    "0": 0,
    "00": 0,
    "0 B": 0,
    "0.0": 0,
    "unlimited": 0,
    "Unlimited": 0,
    "none": 0,
    "None": 0,
    "UNLIMITED": None,
    "NONE": None,
    " unlimited": None,
    "server_default": None,
    "": None,
    " ": None,
    # The unit's letter and `i` may have any case, and `B` may be left out.
    "128 MiB": 128 * MIB,
    "128MiB": 128 * MIB,
    "128 MIB": 128 * MIB,
    "128miB": 128 * MIB,
    "128 MB": 128_000_000,
    "1 GB": 1_000_000_000,
    "1 G": 1_000_000_000,
    "1 Gi": GIB,
    "1 GI": GIB,
    "1 gi": GIB,
    "1 k": 1000,
    "1 kB": 1000,
    "1 KIB": KIB,
    "2 T": 2 * 10**12,
    "2 P": 2 * 10**15,
    "18 EB": 18 * 10**18,
    "1 B": 1,
    "134217728": 128 * MIB,
    # A small `b` is a bit, as is `bit` and `bits` in any case. Parts of a byte are rounded up.
    "128mib": 16 * MIB,
    "128Mib": 16 * MIB,
    "128 mb": 16_000_000,
    "1 gb": 125_000_000,
    "1 Kb": 125,
    "1.5 Kib": 192,
    "0.1b": 1,
    "7b": 1,
    "8b": 1,
    "9b": 2,
    "8 bit": 1,
    "8 BITS": 1,
    "3 bits": 1,
    "16 kbits": 2000,
    "16 Kibits": 2 * KIB,
    "1 byte": None,
    "1 bytes": None,
    "1 bi": None,
    "1 bitss": None,
    # Decimals follow digits on both sides of the point. Parts of a byte are rounded up.
    "1.5": 2,
    "0.5 B": 1,
    "0.5KB": 500,
    "1.0001 KB": 1001,
    "1.5 GB": 1_500_000_000,
    "1.0000000000000000000000000001": 2,
    "1.00000000000000000000000000001": None,
    ".5 GB": None,
    "1.": None,
    "1. GB": None,
    "1.5.5 MB": None,
    # Spaces stand around the text, and between number and unit.
    "1  MiB": MIB,
    "\t1 MiB\n": MIB,
    "1 MiB\u00a0": MIB,
    "1 ": 1,
    "1\tMiB": None,
    "1\u00a0MiB": None,
    "1 M iB": None,
    "1 000": None,
    "\x1c1": None,
    # Other numbers and units.
    "+1": None,
    "-1": None,
    "1e3": None,
    "1,000": None,
    "1_000": None,
    "\uff11 MiB": None,
    "1\u0663": None,
    "1 i": None,
    "1 iB": None,
    "1 MiBs": None,
    "1 ZB": None,
    "15.999 EiB": 18_445_591_152_204_944_770,
    "16 EiB": None,
    "18.5 EB": None,
    "18446744073709551615": U64_MAX,
    "18446744073709551615.5": None,
    "18446744073709551616": None,
}
HOUR_US = 3_600_000_000
SPANS = {
    "1h": HOUR_US,
    "1 hour": HOUR_US,
    "2hrs": 2 * HOUR_US,
    "1h 30m": HOUR_US * 3 // 2,
    "1h30m": HOUR_US * 3 // 2,
    "1h\n30m": HOUR_US * 3 // 2,
    "\t1h ": HOUR_US,
    "1 000 s": 1_000_000_000,
    "1M": 2_630_016_000_000,
    "1m": 60_000_000,
    "2wks": 14 * 24 * HOUR_US,
    "1\u00b5s": 1,
    "1\u03bcs": None,
    "1500ns": 1,
    "999ns": 0,
    "0": 0,
    "00": None,
    "0s": 0,
    "60": None,
    # Decimals, where they are a whole number of nanoseconds (of seconds, from hours up).
    "1.5h": HOUR_US * 3 // 2,
    "0.1h": HOUR_US // 10,
    "1.5 days 1.5m": 36 * HOUR_US + 90_000_000,
    "1 .5h": HOUR_US * 3 // 2,
    "1. 5h": HOUR_US * 3 // 2,
    "0.5s": 500_000,
    "1.123456789s": 1_123_456,
    "0.5us": 0,
    "1.1234567891s": None,
    "0.0001h": None,
    "1.0ns": None,
    "1.h": None,
    ".5h": None,
    "1.5.5h": None,
    "1,5h": None,
    "-1h": None,
    "+1h": None,
    "1_000s": None,
    "1e3s": None,
    "1h,30m": None,
    "1H": None,
    "1Min": None,
    "1micros": None,
    "1 h\u00a0": HOUR_US,
    "1\u0663s": None,
    "136 years": 136 * 31_557_600_000_000,
    "137 years": None,
    "4294967295s 999ms": 4_294_967_295_999_000,
    "4294967296s": None,
    "18446744073709551616s": None,
}


def number_of(read, text):
    """Return the number of `read` for a text; None for ValueError."""
    try:
        return read(text)
    except ValueError:
        return None


@pytest.mark.parametrize("text", SIZES)
def test_a_size_is_read_as_byte_unit_reads_it(text):
    assert number_of(byte_size, text) == SIZES[text]


@pytest.mark.parametrize("text", SPANS)
def test_a_length_of_time_is_read_as_humantime_reads_it(text):
    assert number_of(expiry_us, text) == SPANS[text]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("unlimited", U64_MAX),
        ("Unlimited", 0),
        ("none", 0),
        ("server_default", 0),
        ("2 GB", 2 * 10**9),
    ],
)
def test_a_topics_size_has_two_more_words(text, number):
    assert topic_size(text) == number


@pytest.mark.parametrize("read", [byte_size, expiry_us])
@pytest.mark.parametrize("text", ["9" * 5000, "1" * 60 + "EiB", "1." + "1" * 62 + "h"])
def test_a_long_text_is_refused_with_a_short_message(read, text):
    with pytest.raises(ValueError, match=r"expected|above|is not a") as refused:
        read(text)
    assert len(str(refused.value)) < 200
