"""Typical commands of Kafka's own console tools; see ../README.md.

`python console_today.py FOLDER COMMAND ADDRESS TOPIC ...`; the folder has the tools' jars. The
topic gets a single partition, because the console producer chooses partitions itself.
"""

import base64
import ctypes
import re
import signal
import subprocess
import sys
from pathlib import Path

from lines import RECORDS, say

FOLDER, COMMAND, ADDRESS, TOPIC = sys.argv[1:5]
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{FOLDER}/*"]
TOOLS = "org.apache.kafka.tools."
NULL = "(none)"
CONSUMER = "consumer.ConsoleConsumer"
PR_SET_PDEATHSIG = 1
# The logs of the members show their shares and their committed positions.
LOGS = """rootLogger.level = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = log %m%n
rootLogger.appenderRef.out.ref = out
logger.a.name = org.apache.kafka.clients.consumer.internals.ConsumerCoordinator
logger.a.level = debug
logger.b.name = org.apache.kafka.clients.consumer.internals.ConsumerMembershipManager
logger.b.level = info
logger.c.name = org.apache.kafka.clients.consumer.internals.CommitRequestManager
logger.c.level = debug
"""
SHARES = re.compile(
    r"the new Assignment\(partitions=\[(.*?)\]|^\s*Assigned partitions:\s+\[(.*?)\]"
)
COMMITTED = re.compile(
    r"(?:Committed offset|OffsetCommit completed successfully for offset) (\d+)"
    r"(?: for)? partition .*-(\d+)"
)


def tool(name, *arguments, stdin=""):
    command = [*JAVA, TOOLS + name, "--bootstrap-server", ADDRESS, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode or "Exception" in done.stderr + done.stdout:
        sys.exit(done.stderr + done.stdout)
    return done.stdout


def properties(option, **values):
    properties = {name.replace("_", "."): value for name, value in values.items()}
    return [part for name, value in properties.items() for part in (option, f"{name}={value}")]


def create(partitions):
    tool(
        "TopicCommand", "--create", "--if-not-exists", "--topic", TOPIC, "--partitions", partitions
    )


def produce(codec):
    create("1")
    text = []
    for key, value, headers in RECORDS:
        named = ",".join(f"{name}:{value.decode()}" for name, value in headers) or NULL
        plain = [NULL if part is None else part.decode() for part in (key, value)]
        text.append("\t".join([named, *plain]))
    how = properties("--reader-property", parse_key="true", parse_headers="true", null_marker=NULL)
    named = ["--topic", TOPIC, "--compression-codec", codec]
    tool("ConsoleProducer", *named, *how, stdin="\n".join(text) + "\n")
    say(done=True)


SHOWN = properties(
    "--formatter-property",
    print_key="true",
    print_headers="true",
    print_offset="true",
    print_partition="true",
    null_literal=NULL,
)


def consume(*arguments):
    return tool(CONSUMER, "--topic", TOPIC, *arguments, *SHOWN).splitlines()


def record(line):
    partition, offset, headers, key, value = line.split("\t")
    pairs = [] if headers == "NO_HEADERS" else [pair.split(":") for pair in headers.split(",")]
    return {
        "partition": int(partition.partition(":")[2]),
        "offset": int(offset.partition(":")[2]),
        "key": b64(key),
        "value": b64(value),
        "headers": [[name, b64(value)] for name, value in pairs],
    }


def read(count):
    for line in consume("--partition", "0", "--offset", "earliest", "--max-messages", count):
        say(**record(line))


def modern(group):
    """Run a group consumer of the consumer protocol."""
    member(group, group_protocol="consumer")


def member(group, **protocol):
    """Run a group consumer with automatic commits; print its records, shares and commits."""
    logs = Path(FOLDER) / "member.properties"
    logs.write_text(LOGS)
    classic = {"session_timeout_ms": "6000", "heartbeat_interval_ms": "1000"}
    how = properties(
        "--command-property",
        **(protocol or classic),
        auto_commit_interval_ms="500",
        auto_offset_reset="earliest",
    )
    command = [*JAVA, f"-Dlog4j2.configurationFile={logs}", TOOLS + CONSUMER]
    command += ["--bootstrap-server", ADDRESS, "--topic", TOPIC, "--group", group, *how, *SHOWN]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    )
    positions, committed = {}, {}
    for line in running.stdout:
        if shares := SHARES.search(line):
            numbers = re.findall(r"-(\d+)(?:,|$)", shares[1] or shares[2] or "")
            say(assigned=[int(number) for number in numbers])
        elif done := COMMITTED.search(line):
            committed[int(done[2])] = int(done[1])
            if all(committed.get(at) == end for at, end in positions.items()):
                say(committed=True)
        elif line.startswith("Partition:"):
            fields = record(line.rstrip("\n"))
            positions[fields["partition"]] = fields["offset"] + 1
            say(**fields)
    sys.exit(f"the consumer ended with {running.wait()}")


def die_with_parent():
    """Kill the member when this script is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def b64(text):
    return None if text == NULL else base64.b64encode(text.encode()).decode()


def share(group):
    """Consume as a share group, and use the tool of share groups."""
    create("1")
    named, topic = ["--group", group], ["--topic", TOPIC]
    early = ["--add-config", "share.auto.offset.reset=earliest"]
    run = [*JAVA, "kafka.admin.ConfigCommand", "--bootstrap-server", ADDRESS, "--alter", *early]
    entity = ["--entity-type", "groups", "--entity-name", group]
    subprocess.run([*run, *entity], check=True, capture_output=True)
    tool("ConsoleProducer", *topic, stdin="".join(f"{at}\n" for at in range(10)))
    consumer = ["consumer.ConsoleShareConsumer", *topic, *named, "--max-messages"]
    values = [*tool(*consumer, "4").split(), *tool(*consumer, "6").split()]
    assert sorted(values, key=int) == [str(at) for at in range(10)], values
    groups = "consumer.group.ShareGroupCommand"
    assert group in tool(groups, "--list").split()

    def positions():
        rows = [line.split() for line in tool(groups, "--describe", *named).splitlines()]
        numbers = [map(int, row[3:]) for row in rows if row[:2] == [group, TOPIC]]
        return [sum(column) for column in zip(*numbers, strict=True)]

    assert positions() == [10, 0]
    tool(groups, *named, *topic, "--reset-offsets", "--to-earliest", "--execute")
    assert positions() == [0, 10]
    assert tool(*consumer, "10").split() == [str(at) for at in range(10)]
    assert f"{TOPIC} Successful" in " ".join(
        tool(groups, *named, *topic, "--delete-offsets").split()
    )
    tool(groups, *named, "--delete")
    say(done=True)


def admin():
    topic = ["--topic", TOPIC]
    create("2")
    assert "PartitionCount: 2" in tool("TopicCommand", "--describe", *topic)
    tool("TopicCommand", "--alter", *topic, "--partitions", "3")
    assert TOPIC in tool("TopicCommand", "--list").split()
    tool("ConsoleProducer", *topic, stdin="".join(f"{at}\n" for at in range(10)))
    group = ["--group", f"g-{TOPIC}"]
    first = consume("--from-beginning", *group, "--max-messages", "4")
    rest = consume(*group, "--max-messages", "6")
    values = [line.rpartition("\t")[2] for line in (*first, *rest)]
    assert sorted(values) == sorted(str(at) for at in range(10)), values
    groups = "consumer.group.ConsumerGroupCommand"
    assert f"g-{TOPIC}" in tool(groups, "--list").split()
    rows = [line.split() for line in tool(groups, "--describe", *group).splitlines()]
    lags = [row[5] for row in rows if row[:2] == [f"g-{TOPIC}", TOPIC]]
    assert lags and all(lag == "0" for lag in lags), rows
    tool(groups, *group, *topic, "--reset-offsets", "--to-earliest", "--execute")
    assert len(consume(*group, "--max-messages", "10")) == 10
    tool(groups, *group, "--delete")
    ends = tool("GetOffsetShell", *topic).splitlines()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == 10, ends
    tool("TopicCommand", "--delete", *topic)
    assert TOPIC not in tool("TopicCommand", "--list").split()
    say(done=True)


if __name__ == "__main__":
    commands = {"produce": produce, "read": read, "member": member, "admin": admin}
    commands |= {"modern": modern, "share": share}
    commands[COMMAND](*sys.argv[5:])
