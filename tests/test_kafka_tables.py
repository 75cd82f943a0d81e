"""The generator of Kafka's tables, on definitions of two small releases."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from scripts import kafka_tables
from tests.sources import KAFKA_TABLES

COMMENTED = '// A license.\n{{\n  // Version 1 adds "more" // and more.\n{0}\n}}'


def definition(kind: str, valid: str, *fields: dict[str, Any], **more: Any) -> str:
    """A message definition with comments, as Kafka writes them."""
    data = {
        "apiKey": 7,
        "type": kind.lower(),
        "listeners": ["broker"],
        "name": f"Sample{kind}",
        "validVersions": valid,
        "flexibleVersions": "3+",
        "fields": fields,
        **more,
    }
    return COMMENTED.format(json.dumps(data, indent=1)[2:-2])


def field(name: str, kind: str, versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "versions": versions, "about": f"The {name}.", **more}


def release(folder: Path, request: str, response: str) -> Path:
    """Return the folder of a release with a request and its response."""
    messages = folder / "common" / "message"
    messages.mkdir(parents=True)
    (messages / "SampleRequest.json").write_text(request)
    (messages / "SampleResponse.json").write_text(response)
    return folder


def rows(text: str) -> list[str]:
    return [line.strip().rstrip(",") for line in text.splitlines() if "  Field(" in line]


def test_removed_versions_come_from_the_old_release(tmp_path: Path) -> None:
    part = [field("Index", "int32"), field("From", "string", "4+", default="null")]
    part[1] |= {"nullableVersions": "4+", "taggedVersions": "4+", "tag": 0}
    new = release(
        tmp_path / "new",
        definition("Request", "2-4", field("Topics", "[]Topic", fields=part), field("Max", "int8")),
        definition("Response", "2-4", field("ErrorCode", "int16")),
    )
    old_fields = (field("Topics", "[]Topic", fields=part[:1]), field("Old", "bool", "0-1"))
    old = release(
        tmp_path / "old",
        definition("Request", "0-3", *old_fields, field("Max", "int8", "1+")),
        definition("Response", "0-3", field("ErrorCode", "int16")),
    )
    out = tmp_path / "out"
    out.mkdir()
    (out / "gone.py").write_text("# The module of a key that no release has.\n")
    kafka_tables.main(new, old, out, served={7})
    assert sorted(path.name for path in out.iterdir()) == ["__init__.py", "keys.py", "sample.py"]
    assert (out / "keys.py").read_text().endswith("\n    SAMPLE = 7\n")
    text = (out / "sample.py").read_text()
    assert '"""Sample, api key 7: versions 0 to 4, flexible from 3 on."""' in text
    assert rows(text) == [
        'Field("index", INT32)',
        'Field("from_", STRING, since=4, nullable=4, tag=0)',
        'Field("topics", Array(Topic))',
        'Field("old", BOOL, until=1)',
        'Field("max", INT8, since=1)',
        'Field("error_code", INT16)',
    ]
    spec = importlib.util.spec_from_file_location("sample", out / "sample.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (module.SampleRequest, module.SampleResponse) == (module.REQUEST, module.RESPONSE)
    assert module.SampleRequest(topics=[module.Topic(index=3)]).topics[0].from_ is None


def test_structures_of_one_name_and_two_layouts_get_two_names(tmp_path: Path) -> None:
    release(
        tmp_path,
        definition("Request", "0", field("Topics", "[]Topic", fields=[field("Name", "string")])),
        definition("Response", "0", field("Topics", "[]Topic", fields=[field("Id", "uuid")])),
    )
    kafka_tables.main(tmp_path, tmp_path / "none", tmp_path / "out", served={7})
    text = (tmp_path / "out" / "sample.py").read_text()
    assert "class SampleRequestTopic(Struct)" in text
    assert "class SampleResponseTopic(Struct)" in text


def test_the_version_that_brokers_hide_is_left_out(tmp_path: Path) -> None:
    release(
        tmp_path,
        definition("Request", "0-2", field("A", "int8"), latestVersionUnstable=True),
        definition("Response", "0-2", field("A", "int8")),
    )
    kafka_tables.main(tmp_path, tmp_path / "none", tmp_path / "out", served={7})
    assert "VERSIONS = (0, 1)" in (tmp_path / "out" / "sample.py").read_text()


def test_a_key_that_is_not_served_is_only_named(tmp_path: Path) -> None:
    release(tmp_path, definition("Request", "0"), definition("Response", "0"))
    kafka_tables.main(tmp_path, tmp_path / "none", tmp_path / "out", served=())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["__init__.py", "keys.py"]
    assert "SAMPLE = 7" in (tmp_path / "out" / "keys.py").read_text()


def test_a_field_that_has_moved_is_refused(tmp_path: Path) -> None:
    a, b = field("A", "int8"), field("B", "int8")
    answer = definition("Response", "1", a)
    new = release(tmp_path / "new", definition("Request", "1", a, b), answer)
    old = release(tmp_path / "old", definition("Request", "0", b, a), answer)
    with pytest.raises(ValueError, match="has moved"):
        kafka_tables.main(new, old, tmp_path / "out", served={7})


def test_generated_modules_begin_with_a_notice() -> None:
    for path in KAFKA_TABLES.glob("*.py"):
        if path.name != "__init__.py":
            assert path.read_text().startswith("# Generated by scripts/kafka_tables.py"), path
