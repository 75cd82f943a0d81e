"""Charts of the last hour."""

from braidlog.protocols.http.console.charts import make_charts
from braidlog.protocols.http.management.history import History, Latency, ProtocolRates, Sample


def sample(second, **fields):
    none = Latency(0, None, None)
    values = {
        "time_us": second * 1_000_000,
        "memory_bytes": 0,
        "disk_bytes": 100,
        "disk_free_bytes": 25,
        "protocols": {},
        "commits": none,
        "requests": none,
    }
    return Sample(**(values | fields))


def chart(title, *samples):
    return next(c for c in make_charts(History(30.0, list(samples))) if c.title.startswith(title))


def test_there_are_no_charts_without_samples():
    assert make_charts(History(30.0, [])) == []


def test_the_newest_sample_is_at_the_right_edge_and_the_highest_value_at_the_top():
    rates = [{"kafka": ProtocolRates(records_in_per_s=rate)} for rate in (50, 100, 0)]
    samples = [sample(30 * n, protocols=protocols) for n, protocols in enumerate(rates)]
    shown = chart("Records in", *samples)
    (line,) = shown.lines
    assert (shown.most, line.name, line.latest) == ("100", "kafka", "0")
    assert line.pieces == ["295.0,30.0 297.5,0.0 300.0,60.0"]


def test_a_protocol_without_records_in_a_sample_has_the_rate_0():
    samples = [sample(0), sample(30, protocols={"iggy": ProtocolRates(records_out_per_s=2)})]
    assert chart("Records out", *samples).lines[0].pieces == ["297.5,60.0 300.0,0.0"]


def test_a_missing_time_interrupts_the_line():
    times = [0.001, None, 0.002, 0.002]
    samples = [sample(30 * n, commits=Latency(1, s, s)) for n, s in enumerate(times)]
    line = chart("Commit", *samples).lines[0]
    assert line.pieces == ["292.5,30.0 292.5,30.0", "297.5,0.0 300.0,0.0"]
    assert line.latest == "2 ms"


def test_a_suspended_machine_interrupts_the_line():
    samples = [sample(second, memory_bytes=1024) for second in (0, 30, 1000)]
    assert len(chart("Memory", *samples).lines[0].pieces) == 2


def test_the_upper_edge_of_the_disk_is_its_size():
    shown = chart("Disk", sample(0))
    assert shown.most == "100 B" and shown.lines[0].pieces == ["300.0,15.0 300.0,15.0"]
