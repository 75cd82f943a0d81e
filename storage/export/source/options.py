"""The options of the data source, read and checked. Does no I/O; knows no Spark and no log.

Names, values and precedence follow Spark's Kafka source (Structured Streaming + Kafka Integration
Guide), so that code for that source runs. Our additions are in docs/spark.md.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from braidlog.storage.export.places import BadPlace, store_place
from braidlog.storage.metadata.names import InvalidTopicName, parse_topic

EARLIEST, LATEST = -2, -1  # As Kafka numbers them in JSON offsets.
MS = 1000  # Microseconds.

OnCorrupt = Literal["fail", "skip", "deadletter"]

IGNORED = ("kafka.bootstrap.servers", "service.url")
STREAM_ONLY = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

KNOWN = frozenset(
    {
        *("path", "broker", "token", "store", "database", "endpoint"),
        *("subscribe", "subscribepattern", "assign"),
        *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"),
        *("startingoffsetsbytimestamp", "endingoffsetsbytimestamp"),
        *("startingoffsetsbytimestampstrategy", "failondataloss", "minpartitions"),
        *("maxrecordsperpartition", "maxbytespertrigger", "includeheaders", "includemetadata"),
        *("groupidprefix", "kafka.group.id", "progressgroup", "filterpushdown"),
        *("verifychecksums", "corrupt", "deadletterpath", "valueformat", "valueschema"),
        *STREAM_ONLY,
        *IGNORED,
    }
)


class BadOption(ValueError):
    """An invalid option; the text gives the name and the valid values."""


Offsets = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected partitions: topics by full name, a pattern of whole names, or exact partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """Begin or end of a read.

    For all partitions `offset` (EARLIEST, LATEST) or `time_us`; for single partitions `offsets` or
    `times_us`, with the default for other partitions.
    """

    offset: int
    time_us: int | None = None
    offsets: Offsets | None = None
    times_us: Offsets | None = None


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Bounds of a stream's micro-batch; the lower bound only until the longest delay is over."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_s: float = 900.0  # As in Spark's Kafka source.


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """Decoding of values to the column `data`; an empty schema means the topic's schema."""

    name: str
    schema: str


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """All options of a read."""

    place: str
    selection: Selection
    starting: Edge
    ending: Edge
    no_match_is_latest: bool = False
    fail_on_loss: bool = True
    min_partitions: int | None = None
    records_max: int | None = None
    corrupt: OnCorrupt = "fail"
    dead_letters: str | None = None
    filter_pushdown: bool = False
    limits: TriggerLimits = field(default_factory=TriggerLimits)
    progress_group: str | None = None
    value_format: ValueFormat | None = None


def read_options(raw_options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse Spark's options, in any case. Raises BadOption."""
    options = {name.lower(): value for name, value in raw_options.items()}
    _check_names(options, streaming=streaming)
    read_more_columns(options)
    default = LATEST if streaming else EARLIEST
    starting = _edge(options, "starting", default)
    ending = _edge(options, "ending", LATEST)
    if not streaming and _has(starting, LATEST):
        raise BadOption("startingOffsets: latest (-1) is for streams; a batch reads what is there")
    if _has(ending, EARLIEST):
        raise BadOption("endingOffsets: earliest (-2) would read nothing")
    corrupt = _one_of(options, "corrupt", ("fail", "skip", "deadletter"))
    dead_letters = options.get("deadletterpath")
    if (corrupt == "deadletter") != (dead_letters is not None):
        raise BadOption("corrupt=deadletter and deadLetterPath go together")
    strategy = _one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    return ReadOptions(
        place=_place(options),
        selection=_selection(options),
        starting=starting,
        ending=ending,
        no_match_is_latest=strategy == "latest",
        fail_on_loss=_switch(options, "failOnDataLoss", default=True),
        min_partitions=_count(options, "minPartitions"),
        records_max=_count(options, "maxRecordsPerPartition"),
        corrupt=corrupt,  # type: ignore[arg-type]  # One of the three, as checked above.
        dead_letters=dead_letters,
        filter_pushdown=_switch(options, "filterPushdown"),
        limits=_limits(options) if streaming else TriggerLimits(),
        progress_group=options.get("progressgroup"),
        value_format=_value_format(options),
    )


def read_more_columns(raw_options: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether headers and metadata have columns of their own. Raises BadOption."""
    options = {name.lower(): value for name, value in raw_options.items()}
    return _switch(options, "includeHeaders"), _switch(options, "includeMetadata")


def read_value_options(raw_options: Mapping[str, str]) -> tuple[str, Selection, ValueFormat] | None:
    """Return place, selection and format of values, None if values stay bytes. Raises BadOption."""
    options = {name.lower(): value for name, value in raw_options.items()}
    value_format = _value_format(options)
    return None if value_format is None else (_place(options), _selection(options), value_format)


def _check_names(options: Mapping[str, str], *, streaming: bool) -> None:
    if unknown := sorted(options.keys() - KNOWN):
        raise BadOption(f"no option {unknown[0]!r}; docs/spark.md lists them all")
    for name in IGNORED:
        if name in options:
            warnings.warn(f"option {name} is ignored: path or broker says where", stacklevel=2)
    ending = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
    if streaming:
        if refused := [name for name in ending if name in options]:
            raise BadOption(f"{refused[0]} is for batches; a stream has no end")
    else:
        for name in STREAM_ONLY:
            if name in options:
                warnings.warn(f"option {name} is for streams and is ignored", stacklevel=2)
    if not _switch(options, "verifyChecksums", default=True):
        warnings.warn("verifyChecksums=false is ignored: they cost nothing", stacklevel=2)


def _place(options: Mapping[str, str]) -> str:
    """Return a folder, a store, or `http://HOST:PORT` with an optional token before an @."""
    places = [name for name in ("path", "broker", "store") if name in options]
    if len(places) != 1:
        raise BadOption(
            "give exactly one of path (a data directory), broker (HOST:PORT) and store (a "
            "cluster's, with database)"
        )
    (name,) = places
    for other in ("database", "endpoint"):
        if name != "store" and other in options:
            raise BadOption(f"{other} goes with store")
    if name == "path":
        return options["path"]
    if name == "store":
        try:
            return store_place(options["store"], options.get("database"), options.get("endpoint"))
        except BadPlace as error:
            raise BadOption(str(error)) from None
    scheme, _, host = options["broker"].rpartition("://")
    token = quote(options["token"], safe="") if "token" in options else ""
    return f"{scheme or 'http'}://" + (f":{token}@{host}" if token else host)


def _selection(options: Mapping[str, str]) -> Selection:
    names = [n for n in ("subscribe", "subscribepattern", "assign") if n in options]
    if len(names) != 1:
        raise BadOption("give exactly one of subscribe, subscribePattern and assign")
    value = options[names[0]]
    if names[0] == "subscribepattern":
        return Selection(pattern=value)
    if names[0] == "subscribe":
        topics = tuple(topic_name(name.strip()) for name in value.split(",") if name.strip())
        if not topics:
            raise BadOption("subscribe names no topic")
        return Selection(topics=topics)
    assigned: dict[str, tuple[int, ...]] = {}
    for name, numbers in _json(value, "assign", '{"orders": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise BadOption('assign: partitions are lists of numbers: {"orders": [0, 1]}')
        assigned[topic_name(name)] = tuple(numbers)
    return Selection(assigned=assigned)


def topic_name(text: str) -> str:
    """Return the full name of a topic from user input. Raises BadOption."""
    try:
        return parse_topic(text).full
    except InvalidTopicName as error:
        raise BadOption(str(error)) from None


def _edge(options: Mapping[str, str], which: str, default: int) -> Edge:
    """Parse an edge: `...Timestamp` wins over `...OffsetsByTimestamp`, which wins over
    `...Offsets`.
    """
    time = options.get(f"{which}timestamp")
    if time is not None:
        return Edge(default, time_us=_number(time, f"{which}Timestamp") * MS)
    by_time = options.get(f"{which}offsetsbytimestamp")
    if by_time is not None:
        name = f"{which}OffsetsByTimestamp"
        times = _per_partition(by_time, name)
        return Edge(
            default, times_us={t: {p: n * MS for p, n in x.items()} for t, x in times.items()}
        )
    text = options.get(f"{which}offsets")
    if text is None:
        return Edge(default)
    if text.strip().lower() in ("earliest", "latest"):
        return Edge(EARLIEST if text.strip().lower() == "earliest" else LATEST)
    offsets = _per_partition(text, f"{which}Offsets")
    if any(offset < EARLIEST for partitions in offsets.values() for offset in partitions.values()):
        raise BadOption(f"{which}Offsets: -2 is earliest, -1 latest; there is no lower number")
    return Edge(default, offsets=offsets)


def _has(edge: Edge, offset: int) -> bool:
    by_topic = edge.offsets or {}
    is_default = edge.time_us is None and edge.times_us is None and edge.offsets is None
    return (is_default and edge.offset == offset) or any(
        offset in partitions.values() for partitions in by_topic.values()
    )


def _per_partition(text: str, name: str) -> dict[str, dict[int, int]]:
    example = '{"orders": {"0": 23}}'
    by_topic = _json(text, name, example)
    result: dict[str, dict[int, int]] = {}
    for topic, partitions in by_topic.items():
        if not isinstance(partitions, dict):
            raise BadOption(f"{name}: {example} is what it looks like")
        try:
            numbers = {int(p): n for p, n in partitions.items()}
        except ValueError:
            raise BadOption(f"{name}: {topic}: partitions are numbers") from None
        if not all(type(n) is int for n in numbers.values()):
            raise BadOption(f"{name}: {topic}: offsets and times are numbers")
        result[topic_name(topic)] = numbers
    return result


def _json(text: str, name: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BadOption(f"{name}: {text!r} is not JSON such as {example}")
    return value


def _limits(options: Mapping[str, str]) -> TriggerLimits:
    rows_max = _count(options, "maxOffsetsPerTrigger")
    rows_min = _count(options, "minOffsetsPerTrigger")
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise BadOption("minOffsetsPerTrigger is above maxOffsetsPerTrigger")
    delay = options.get("maxtriggerdelay", "15m")
    return TriggerLimits(rows_max, _count(options, "maxBytesPerTrigger"), rows_min, _time(delay))


def _time(text: str) -> float:
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip()[len(digits) :].strip() or "ms"
    if not digits.isdigit() or unit not in UNITS_S:
        raise BadOption(f"maxTriggerDelay: {text!r} is not a length of time such as 30s or 15m")
    return int(digits) * UNITS_S[unit]


def _value_format(options: Mapping[str, str]) -> ValueFormat | None:
    name = options.get("valueformat")
    if name is None:
        if "valueschema" in options:
            raise BadOption("valueSchema needs valueFormat")
        return None
    if name not in ("json", "avro"):
        raise BadOption(f"valueFormat: {name!r}: json or avro")
    return ValueFormat(name, options.get("valueschema", ""))


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadOption(f"{name}: {text!r} is no number") from None


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    number = _number(text, name)
    if number < 1:
        raise BadOption(f"{name}: {text}: at least 1")
    return number


def _switch(options: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise BadOption(f"{name}: {text!r}: true or false")
    return text.lower() == "true"


def _one_of(options: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    text = options.get(name.lower(), values[0]).lower()
    if text not in values:
        raise BadOption(f"{name}: {text!r}: one of {', '.join(values)}")
    return text
