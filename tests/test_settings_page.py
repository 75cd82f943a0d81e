"""docs/settings.md has exactly the settings of the code, with their defaults.

docs/cluster.md has those of a shared store.
"""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from braidlog.broker.config.settings import (
    ENV_OTHERS,
    Config,
    ListenerConfig,
    PrincipalLimits,
    TlsConfig,
    plain_value,
)
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.iggy.http.options import IggyHttpOptions
from braidlog.protocols.iggy.options import IggyOptions
from braidlog.protocols.iggy.websocket_adapter import IggyWebSocketOptions
from braidlog.protocols.kafka.options import KafkaOptions
from braidlog.protocols.pulsar.options import PulsarOptions
from braidlog.protocols.zookeeper.options import ZooKeeperOptions

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "settings.md").read_text()
CLUSTER = (DOCS / "cluster.md").read_text()
PROTOCOLS = {"kafka": KafkaOptions, "pulsar": PulsarOptions, "iggy": IggyOptions}
PROTOCOLS |= {"http": RestOptions, "zookeeper": ZooKeeperOptions}
PROTOCOLS |= {"iggy-websocket": IggyWebSocketOptions, "iggy-http": IggyHttpOptions}
ROW = re.compile(r"^\| `([\w.-]+(?:NAME)?[\w.]*)` \| (.*?) ?\| ", re.MULTILINE)
NO_SETTINGS = {"origins", "listeners", "name", "options"}  # Fields that the loader fills.


def fields(struct: type, at: str) -> Iterator[tuple[str, object, object]]:
    """Yield (dotted name, type, default) of each setting in a group, inner groups included."""
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if field.name in NO_SETTINGS:
            continue
        hint, dotted = hints[field.name], f"{at}{field.name}"
        inner = [part for part in (hint, *typing.get_args(hint)) if is_group(part)]
        if inner == [PrincipalLimits] and field.name == "user_limits":
            yield f"{dotted}.NAME", str, None
        elif inner:
            yield from fields(inner[0], f"{dotted}.")
        else:
            default = None if field.default is msgspec.NODEFAULT else field.default
            yield dotted, hint, default


def is_group(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def settings() -> dict[str, tuple[object, object]]:
    """Return every setting with its type and default."""
    fields_listed = [*fields(Config, ""), *fields(ListenerConfig, "listeners.NAME.")]
    for name, options in PROTOCOLS.items():
        fields_listed += fields(options, f"listeners.{name}.")
    assert any(name.endswith("tls.key_file") for name, _, _ in fields_listed), TlsConfig
    return {name: (hint, default) for name, hint, default in fields_listed}


def test_every_setting_has_a_row():
    shown = {name for name, _ in ROW.findall(PAGE)}
    first_cells = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", CLUSTER, re.MULTILINE)
    shown |= {name for cell in first_cells for name in re.findall(r"[\w.]+", cell)}
    assert sorted(settings().keys() - shown) == []


def test_every_row_of_the_page_is_a_setting_with_its_default():
    known = settings()
    wrong = []
    for name, shown in ROW.findall(PAGE):
        if name in ENV_OTHERS:
            continue
        assert name in known, name
        hint, default = known[name]
        if default is None and shown in ("", "none"):
            continue
        value = plain_value(name.rpartition(".")[2], shown.replace(" ", ""), hint)
        kind = type(default) if not isinstance(default, tuple) else tuple
        value = msgspec.convert(value, kind, strict=False)
        if value != default and not (default in ("", None) and not shown):
            wrong.append(f"{name}: {shown!r} on the page, {default!r} in the code")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("variable", sorted(ENV_OTHERS))
def test_every_environment_variable_without_setting_is_on_the_page(variable):
    assert re.search(rf"`{variable}[`=]", PAGE), variable
