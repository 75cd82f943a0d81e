"""Settings: their sources, the order of precedence, and a clear line for each mistake."""

import re
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from braidlog.broker.config.settings import (
    ConfigError,
    decode,
    is_loopback,
    load,
    parse_address,
    plain_value,
)

ROOT = Path(__file__).parents[3]

CASES = [
    # file, environment, flags, expected message
    (
        "log.segment_byts = 1",
        {},
        (),
        "FILE: log.segment_byts: unknown setting, did you mean log.segment_bytes?",
    ),
    (
        "access.limits.conections = 1",
        {},
        (),
        "access.limits.conections: unknown setting, did you mean access.limits.connections?",
    ),
    (
        "[listeners.kafka]\ntls = {certificate_file = 'x', key_fil = 'y'}",
        {},
        (),
        "listeners.kafka.tls.key_fil: unknown setting, did you mean listeners.kafka.tls.key_file?",
    ),
    ("nope = 1", {}, (), "FILE: nope: unknown setting"),
    ("origins = 1", {}, (), "FILE: origins: unknown setting"),
    ("[log]\nsegment_bytes = 'big'", {}, (), "FILE: log.segment_bytes: 'big' is not a size"),
    (
        "[log]\nsegment_bytes = 12",
        {},
        (),
        "FILE: log.segment_bytes: expected a whole number of at least 65536",
    ),
    ("[log]\ndurability = 'hopeful'", {}, (), "FILE: log.durability: 'hopeful' is none of synced"),
    ("log = 3", {}, (), "FILE: log: expected a group of settings, not a whole number"),
    ("[[topics]]\nx = 1", {}, (), "FILE: topics: expected a group of settings, not a list"),
    ("listeners = 3", {}, (), "FILE: listeners: is a group of settings"),
    ("[listeners]\nkafka = 3", {}, (), "FILE: listeners.kafka: is a group of settings"),
    ("[listeners.kafka]\nlisten = 'here'", {}, (), "FILE: listeners.kafka.listen: 'here' is no"),
    (
        "[listeners.kafka]\nlisten = 9092",
        {},
        (),
        "FILE: listeners.kafka.listen: expected text or none, not a whole number",
    ),
    ("[listeners.kafka]\nadvertised = 'x:99999'", {}, (), "listeners.kafka.advertised: 'x:99999'"),
    ("what is this", {}, (), "FILE: not TOML: Expected '=' after a key"),
    ("", {"BRAIDLOG_LOG__NOPE": "1"}, (), "environment BRAIDLOG_LOG__NOPE: log.nope: unknown"),
    (
        "",
        {"BRAIDLOG_TOPICS__AUTO_CREATE": "perhaps"},
        (),
        "topics.auto_create: expected true or false, not text",
    ),
    (
        "",
        {"BRAIDLOG_LOG": "1"},
        (),
        "environment BRAIDLOG_LOG: log: expected a group of settings, not text",
    ),
    (
        "",
        {},
        [("log.durability", "x", "--set x")],
        "--set x: log.durability: 'x' is none of synced, written",
    ),
    ("", {}, [("log.retention_ms", "soon", "--set x")], "--set x: log.retention_ms: 'soon' is"),
    (
        "",
        {},
        [("log", "1", "--set log=1")],
        "--set log=1: log: expected a group of settings, not text",
    ),
    (
        "",
        {},
        [("data_dir.x", "1", "--set y")],
        "--set y: data_dir: expected text, not a group of settings",
    ),
    ("data_dir = 'd'", {}, [("data_dir.x", "1", "--set y")], "--set y: data_dir.x: 'data_dir' is"),
    ("[log]\nsegment_ms = 5", {}, [("log", "1", "--set y")], "--set y: log: names a group"),
    ("", {}, [("", "1", "--set =1")], "--set =1: : names a group"),
    (
        "access.superusers = [1]",
        {},
        (),
        "FILE: access.superusers[0]: expected text, not a whole number",
    ),
]


def read(tmp_path, text="", environment=None, flags=()):
    path = tmp_path / "braidlog.toml"
    path.write_text(text)
    return load(file=str(path), environment=environment or {}, flags=flags)


@pytest.mark.parametrize(("text", "environment", "flags", "reason"), CASES)
def test_a_mistake_is_a_single_line_with_its_place(tmp_path, text, environment, flags, reason):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, environment, flags)
    message = str(caught.value).replace(str(tmp_path / "braidlog.toml"), "FILE")
    assert reason in message
    assert "\n" not in message


def test_text_of_a_list_is_split_and_each_part_is_checked():
    hint = tuple[Literal["braidlog", "pulsar", "kafka"], ...]
    assert plain_value("metrics_sets", "kafka, pulsar", hint) == ["kafka", "pulsar"]
    with pytest.raises(ValueError, match="'kafkas' is none of braidlog, pulsar, kafka"):
        plain_value("metrics_sets", "kafka,kafkas", hint)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"/no/such\.toml: No such file"):
        load(file="/no/such.toml", environment={})


def test_flags_override_environment_and_file(tmp_path):
    text = "[log]\nsegment_bytes = '1MiB'\nsegment_ms = '1h'\nflush_interval_ms = 7\n"
    config = read(
        tmp_path,
        text,
        {"BRAIDLOG_LOG__SEGMENT_BYTES": "2MiB", "BRAIDLOG_LOG__SEGMENT_MS": "2h"},
        [("log.segment_bytes", "3MiB", "--set log.segment_bytes=3MiB")],
    )
    assert config.log.segment_bytes == 3 << 20
    assert config.log.segment_ms == 2 * 3_600_000
    assert config.log.flush_interval_ms == 7


def test_the_file_named_in_the_environment_is_read(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text("log_level = 'debug'")
    assert load(environment={"BRAIDLOG_CONFIG": str(path)}).log_level == "debug"


def test_other_environment_variables_are_no_settings():
    names = {
        name
        for folder in ("broker", "storage", "protocols")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'"(BRAIDLOG_[A-Z_]+)"', path.read_text())
        if "__" not in name
    }
    assert {"BRAIDLOG_CLUSTER_SECRET", "BRAIDLOG_PURE"} < names
    assert load(environment=dict.fromkeys(names - {"BRAIDLOG_CONFIG"}, "x")).origins == {}


def test_text_becomes_numbers_booleans_times_and_none(tmp_path):
    config = read(
        tmp_path,
        "",
        {
            "BRAIDLOG_TOPICS__AUTO_CREATE": "false",
            "BRAIDLOG_TOPICS__NUM_PARTITIONS": "12",
            "BRAIDLOG_SHUTDOWN__GRACE_S": "500ms",
            "BRAIDLOG_LOG__RETENTION_MS": "7d",
            "BRAIDLOG_LOG__RETENTION_BYTES": "none",
        },
    )
    assert config.topics.auto_create is False
    assert config.topics.num_partitions == 12
    assert config.shutdown.grace_s == 0.5
    assert config.log.retention_ms == 7 * 86_400_000
    assert config.log.retention_bytes is None


def test_listeners_keep_options_of_their_adapter(tmp_path):
    text = """
        [listeners.kafka]
        listen = "[::1]:9092"
        [listeners.billing]
        protocol = "kafka"
        advertised = "billing.example:1"
        insecure = true
        namespace = "public/billing"
    """
    config = read(tmp_path, text, flags=[("listeners.kafka.listen", "off", "--listen kafka=off")])
    assert config.listener("kafka").listen == "off"
    billing = config.listener("billing")
    assert (billing.protocol, billing.listen) == ("kafka", None)
    assert billing.advertised == ("billing.example", 1)
    assert billing.insecure is True
    assert billing.options == {"namespace": "public/billing"}
    assert config.listener("iggy").protocol == "iggy"


class GivenOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    frame_bytes_max: int = 5
    idle_s: float = 1.0
    name: str = "n"


def test_adapter_options_take_units_and_report_their_place():
    origins = {"listeners.x.frame_bytes_max": "--set f"}
    options = decode(
        {"frame_bytes_max": "1MiB", "idle_s": "2m"}, GivenOptions, origins, "listeners.x"
    )
    assert options == GivenOptions(1 << 20, 120.0)
    with pytest.raises(ConfigError, match=r"^--set f: listeners\.x\.frame_bytes_max: 'x' is not"):
        decode({"frame_bytes_max": "x"}, GivenOptions, origins, "listeners.x")
    with pytest.raises(ConfigError, match=r"listeners\.x\.nope: unknown setting"):
        decode({"nope": "x"}, GivenOptions, origins, "listeners.x")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", ":9092", "host:", "host:x", "host:65536", "host:-1"])
def test_invalid_addresses_are_refused(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


def test_loopback_differs_from_reachable_addresses():
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.1", "example.org"]))


SHARED = (
    ("storage.mode", "shared", "test"),
    ("shared.database", "postgresql://x", "test"),
    ("shared.store", "s3://b/p", "test"),
)


def test_the_shared_store_has_its_own_defaults_of_the_log(tmp_path):
    config = read(tmp_path, flags=SHARED)
    assert (config.log.segment_bytes, config.log.segment_ms) == (128 * 2**20, 86_400_000)
    config = read(tmp_path, flags=(*SHARED, ("log.segment_bytes", "1MiB", "test")))
    assert config.log.segment_bytes == 2**20


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (SHARED[:1], "storage.mode shared needs shared.database"),
        (SHARED[:2], "storage.mode shared needs shared.store, which is not set"),
        ((*SHARED, ("log.durability", "written", "--set d")), "--set d: log.durability: only"),
        ((*SHARED, ("cluster.lease_ms", "1s", "--set l")), "--set l: cluster.lease_ms: is less"),
    ],
)
def test_invalid_settings_of_the_shared_store_are_refused(tmp_path, flags, reason):
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path, flags=flags)


def test_an_unreadable_place_has_no_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/" + "x" * 5000)  # The path is too long for the system.
    assert load(environment={}).data_dir == "data"
