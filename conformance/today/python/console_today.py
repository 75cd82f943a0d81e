"""What a user of Kafka's own console tools types; see ../README.md.

`python console_today.py FOLDER COMMAND ADDRESS TOPIC ...`; the folder has the tools' jars. The
topic is made with one partition, as the console producer chooses partitions itself.
"""

import base64
import subprocess
import sys

from lines import RECORDS, say

FOLDER, COMMAND, ADDRESS, TOPIC = sys.argv[1:5]
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", f"{FOLDER}/*"]
TOOLS = "org.apache.kafka.tools."
NULL = "(none)"


def tool(name, *arguments, given=""):
    command = [*JAVA, TOOLS + name, "--bootstrap-server", ADDRESS, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    if done.returncode or "Exception" in done.stderr + done.stdout:
        sys.exit(done.stderr + done.stdout)
    return done.stdout


def properties(option, **values):
    given = {name.replace("_", "."): value for name, value in values.items()}
    return [part for name, value in given.items() for part in (option, f"{name}={value}")]


def create(partitions):
    tool(
        "TopicCommand", "--create", "--if-not-exists", "--topic", TOPIC, "--partitions", partitions
    )


def produce(codec):
    create("1")
    text = []
    for key, value, headers in RECORDS:
        named = ",".join(f"{name}:{one.decode()}" for name, one in headers) or NULL
        plain = [NULL if one is None else one.decode() for one in (key, value)]
        text.append("\t".join([named, *plain]))
    how = properties("--reader-property", parse_key="true", parse_headers="true", null_marker=NULL)
    named = ["--topic", TOPIC, "--compression-codec", codec]
    tool("ConsoleProducer", *named, *how, given="\n".join(text) + "\n")
    say(done=True)


def consume(*arguments):
    how = properties(
        "--formatter-property",
        print_key="true",
        print_headers="true",
        print_offset="true",
        print_partition="true",
        null_literal=NULL,
    )
    return tool("consumer.ConsoleConsumer", "--topic", TOPIC, *arguments, *how).splitlines()


def read(count):
    for line in consume("--partition", "0", "--offset", "earliest", "--max-messages", count):
        partition, offset, headers, key, value = line.split("\t")
        pairs = [] if headers == "NO_HEADERS" else [one.split(":") for one in headers.split(",")]
        say(
            partition=int(partition.partition(":")[2]),
            offset=int(offset.partition(":")[2]),
            key=b64(key),
            value=b64(value),
            headers=[[name, b64(one)] for name, one in pairs],
        )


def b64(text):
    return None if text == NULL else base64.b64encode(text.encode()).decode()


def admin():
    topic = ["--topic", TOPIC]
    create("2")
    assert "PartitionCount: 2" in tool("TopicCommand", "--describe", *topic)
    tool("TopicCommand", "--alter", *topic, "--partitions", "3")
    assert TOPIC in tool("TopicCommand", "--list").split()
    tool("ConsoleProducer", *topic, given="".join(f"{at}\n" for at in range(10)))
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
    commands = {"produce": produce, "read": read, "admin": admin}
    commands[COMMAND](*sys.argv[5:])
