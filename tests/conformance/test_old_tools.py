"""The comparison of the tools' output, and the first steps if `python -m conformance.old` has built
the tools.
"""

import pytest

from conformance.old import tools
from conformance.old.programs import OLDER_TOOLS, TOOLS


def test_times_ids_and_addresses_are_left_out():
    output = """[2026-11-27 14:00:00,123] WARN at work
readers_host-1795787000000-0a1b2c3d-0 at 127.0.0.1:2181
\tat kafka.admin.TopicCommand$.main(TopicCommand.scala:65)
topic __consumer_offsets
{"version":1,"partitions":[{"topic":"b","partition":1},{"topic":"b","partition":0}]}
"""
    assert tools.masked(output).splitlines() == [
        "[TIME] WARN at work",
        "CONSUMER at ADDRESS",
        '{"version": 1, "partitions": [{"topic": "b", "partition": 0},'
        ' {"topic": "b", "partition": 1}]}',
    ]
    assert tools.masked("b\na\n", is_sorted=True) == "a\nb\n"
    assert tools.masked(tools.masked(output)) == tools.masked(output)


@pytest.mark.parametrize("version", [TOOLS.version, OLDER_TOOLS.version])
def test_every_step_has_a_recorded_output_and_no_other(version):
    names = {step.name for step in tools.STEPS} | {"mirror the topic"}
    files = {tools.recorded(name, version) for name in names}
    assert files == set(tools.recorded("", version).parent.glob("*.txt"))
    assert not tools.difference("list topics", "compacted\norders\n")
    assert "-orders" in tools.difference("list topics", "compacted\n")


@pytest.mark.slow
@pytest.mark.clients
def test_the_first_steps_show_the_same_as_a_real_kafka():
    if not TOOLS.folder.is_dir():
        pytest.skip("not built here: python -m conformance.old --only kafka-tools")
    with tools.broker_at(None, None) as (kafka, zookeeper):
        outcomes_of = {}
        for name, outcome in tools.compare(kafka, zookeeper, TOOLS.version):
            outcomes_of[name] = outcome
            if name == "create a topic":
                break
    assert set(outcomes_of.values()) == {"ok"}, outcomes_of


def test_a_release_has_its_own_names_of_programs_and_options():
    step = next(step for step in tools.STEPS if step.name == "check positions")
    assert "--zookeeper" in tools.of_release(step, "0.8.2.2")[1]
    assert "--zkconnect" in tools.of_release(step, "0.8.1.1")[1]
    step = next(step for step in tools.STEPS if step.name == "produce")
    assert tools.of_release(step, "0.8.1.1")[0] == "kafka.producer.ConsoleProducer"


def test_lines_are_sorted_without_their_times_and_states():
    connecting = "[zk: 127.0.0.1:1(CONNECTING) 0] ls /\n[zk: 127.0.0.1:1(CONNECTED) 1] get /\n"
    connected = "[zk: 127.0.0.1:1(CONNECTED) 0] ls /\n[zk: 127.0.0.1:1(CONNECTED) 1] get /\n"
    assert tools.masked(connecting, is_sorted=True) == tools.masked(connected, is_sorted=True)
