from pathlib import Path

import pytest

from braidlog.storage.errors import UnreadableBody
from braidlog.storage.formats import registry
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.plain.codec import PlainCodec


class OtherCodec(PlainCodec):
    name = "test-other"
    format = 250


class TwinCodec(PlainCodec):
    name = "test-other"
    format = 251


OTHER = OtherCodec()

INSTALLED = """
from braidlog.storage.formats.plain.codec import PlainCodec


class InstalledCodec(PlainCodec):
    name = "test-installed"
    format = 252


CODEC = InstalledCodec()
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a test's registrations afterwards."""
    monkeypatch.setattr(registry, "_by_format", dict(registry._by_format))
    monkeypatch.setattr(registry, "_by_name", dict(registry._by_name))


@pytest.fixture
def other_codec() -> OtherCodec:
    registry.register(OTHER)
    return OTHER


@pytest.mark.parametrize("name", ["plain", "kafka", "pulsar", "iggy"])
def test_built_in_codecs_are_found_by_number_and_name(name: str) -> None:
    codec = registry.codec_named(name)
    assert codec.name == name
    assert codec.format == BodyFormat[name.upper()]
    assert registry.codec_for(codec.format) is codec


def test_a_registered_codec_is_found(other_codec: OtherCodec) -> None:
    assert registry.codec_for(250) is other_codec
    assert registry.codec_named("test-other") is other_codec
    registry.register(other_codec)  # A repeated registration is no clash.


def test_numbers_and_names_have_one_owner(other_codec: OtherCodec) -> None:
    with pytest.raises(ValueError, match="clashes"):
        registry.register(TwinCodec())


def test_built_in_numbers_and_names_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="number"):
        registry.register(PlainCodec())


def test_an_installed_codec_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed_codec.py").write_text(INSTALLED)
    info = tmp_path / "installed_codec-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-codec\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[braidlog.codecs]\nx = installed_codec:CODEC\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registry.codec_for(252).name == "test-installed"
    assert registry.codec_named("test-installed").format == 252


@pytest.mark.parametrize("body_format", [0, BodyFormat.GAP, BodyFormat.JOURNAL, 63, 99])
def test_an_unknown_format_is_unreadable(body_format: int) -> None:
    with pytest.raises(UnreadableBody):
        registry.codec_for(body_format)
    with pytest.raises(UnreadableBody):
        registry.codec_named("nobody's")
