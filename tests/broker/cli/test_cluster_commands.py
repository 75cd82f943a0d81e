"""`braidlog cluster` and `braidlog serve` over a temporary PostgreSQL and a folder of objects."""

import json
import os
import signal
import urllib.request

import pytest
import trio

from braidlog.broker.cli.main import run
from braidlog.broker.cluster import join_cluster
from braidlog.broker.config.settings import load
from conformance.server import RunningBroker
from tests.waiting import until_seen

pytest.importorskip("obstore", reason="the extra `shared` is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture
def settings(postgres, tmp_path):
    """Return the settings of a cluster that does not exist yet."""
    import psycopg

    name = f"c{abs(hash(str(tmp_path)))}"
    with psycopg.connect(postgres.database, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    database = postgres.database.rpartition("/")[0] + f"/{name}"
    return [
        "storage.mode=shared",
        f"shared.database={database}",
        f"shared.store=file://{tmp_path}/objects",
    ]


@pytest.fixture
def braidlog(settings, capsys):
    """Yield `braidlog(command, ...)`, which returns the exit code and the output."""

    def braidlog(*arguments):
        flags = [part for setting in settings for part in ("--set", setting)]
        capsys.readouterr()
        code = run(["cluster", *arguments, *flags])
        output = capsys.readouterr()
        return code, (output.out or output.err).strip()

    return braidlog


@pytest.fixture
def node(settings, tmp_path):
    """Yield `node(number)`, which returns a broker of that cluster, not started yet."""
    brokers = []

    def node(number, *more):
        own = [*settings, f"cluster.node_id={number}", "shared.round_ms=20", "cluster.beat_ms=200"]
        own += more
        listen = {"http": "127.0.0.1:0"}
        folder = tmp_path / f"node{number}"
        brokers.append(RunningBroker(folder, listen=listen, others=False, settings=own))
        return brokers[-1]

    yield node
    for member in brokers:
        member.kill()


def request(broker, path, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    sent = urllib.request.Request(broker.url + path, data, headers, method=method)
    with urllib.request.urlopen(sent) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def owned(braidlog):
    """Return the shards by node, of live sessions."""
    code, text = braidlog("show", "--output", "json")
    assert code == 0, text
    tree = json.loads(text)
    nodes = {row["session"]: row["node"] for row in tree["sessions"] if row["state"] == "live"}
    counts = dict.fromkeys(nodes.values(), 0)
    for shard in tree["shards"]:
        if shard["session"] in nodes:
            counts[nodes[shard["session"]]] += 1
    return counts


def test_a_cluster_is_created_once(braidlog):
    assert braidlog("show") == (
        1,
        "braidlog: the database holds no cluster: run `braidlog cluster init`",
    )
    code, printed = braidlog("init", "--shards", "8")
    assert code == 0 and printed.endswith("8 shards: made")
    code, again = braidlog("init", "--shards", "8")
    assert code == 0 and again == printed.replace("made", "was there")
    code, text = braidlog("show")
    assert code == 0
    assert text.splitlines()[0] == printed.replace(" shards: made", " shards and the catalogue's")
    assert text.splitlines()[-1] == "9 of 9 shards have no owner"
    assert braidlog("drain", "5") == (1, "braidlog: node 5 has no live session")
    assert braidlog("sweep", "--yes") == (0, "0 objects of the trash and 0 orphans deleted")
    assert braidlog("verify")[0] == 0


def test_brokers_share_shards_and_a_drain_is_undone(braidlog, node):
    braidlog("init", "--shards", "8")
    first, second = node(1).start(), node(2).start()
    until_seen(lambda: set(owned(braidlog).values()) == {4, 5})
    code, text = braidlog("show")
    rows = [line.split() for line in text.splitlines()[2:-1]]
    assert [(row[1], row[2]) for row in rows] == [("1", "live"), ("2", "live")]
    assert text.splitlines()[-1] == "0 of 9 shards have no owner"
    # Records written to a broker are read from the other.
    request(first, "/api/v1/topics/public/default/t", {"partitions": 1}, "PUT")
    body = {"messages": [{"value": "v", "partition": 0}]}
    request(first, "/topics/public/default/t", body)
    read = "/topics/public/default/t/partitions/0/messages"
    until_seen(lambda: request(second, read)["messages"][0]["value"] == "v")

    code, text = braidlog("drain", "2")
    assert code == 0 and text.startswith("node 2 owns nothing after ")
    assert owned(braidlog) == {1: 9, 2: 0}
    assert any(" drains " in line for line in braidlog("show")[1].splitlines())
    assert request(second, read)["messages"][0]["value"] == "v"
    assert braidlog("drain", "2", "--undo") == (0, "")
    until_seen(lambda: owned(braidlog)[2] > 0)

    assert second.stop() == 0
    until_seen(lambda: owned(braidlog) == {1: 9})
    assert first.stop() == 0
    code, text = braidlog("verify", "--deep")
    assert code == 0 and " 1 partitions, " in text and " 0 faults" in text
    assert owned(braidlog) == {}


def test_a_broker_that_waits_for_the_catalogue_can_be_stopped(braidlog, node):
    """Another broker owns every shard, and hangs."""
    braidlog("init", "--shards", "4")
    first = node(1).start()
    os.kill(first.pid, signal.SIGSTOP)
    waiting = node(2)
    waiting.launch()
    until_seen(lambda: '"started"' in waiting.log())
    assert waiting.stop() == 0
    os.kill(first.pid, signal.SIGCONT)


async def test_a_stop_signal_during_the_opening_of_the_cache_is_kept(
    braidlog, settings, tmp_path, monkeypatch
):
    """A thread opens the cache folder, and cannot be interrupted."""

    assert braidlog("init", "--shards", "4")[0] == 0
    flags = [(*setting.split("=", 1), "test") for setting in settings]
    flags.append(("data_dir", str(tmp_path / "data"), "test"))
    config = load(environment={}, file="/dev/null", flags=flags)
    opened = join_cluster.SharedDir.of_session

    def open_and_stop(*shards):
        shared = opened(*shards)
        trio.from_thread.run_sync(stopping.cancel)
        return shared

    monkeypatch.setattr(join_cluster.SharedDir, "of_session", open_and_stop)
    with trio.CancelScope() as stopping:
        await join_cluster.join_cluster(config)
    assert stopping.cancelled_caught
    assert owned(braidlog) == {}  # The session has ended: no broker waits for its lease.
    monkeypatch.undo()
    again = await join_cluster.join_cluster(config)  # The folder is free too.
    again.abandon()


def test_a_broker_that_starts_before_its_database_waits_for_it(braidlog, node, postgres):
    braidlog("init", "--shards", "4")
    postgres.stop()
    first = node(1)
    first.launch()
    until_seen(lambda: "store_unanswered" in first.log())
    postgres.start()
    until_seen(first.is_ready)
    assert first.stop() == 0


def test_a_start_that_waits_for_a_store_can_be_stopped(node, postgres):
    postgres.stop()
    try:
        first = node(1)
        first.launch()
        until_seen(lambda: "store_unanswered" in first.log())
        assert first.stop() == 0
    finally:
        postgres.start()


def test_a_broker_does_not_start_without_a_cluster(node):
    code, _, log = node(1).run_to_end()
    assert code == 1 and "cluster init" in log.splitlines()[-1]


def objects_in(tmp_path):
    """Return the objects of the cluster's store without marks, which the next mark replaces."""
    files = {path for path in (tmp_path / "objects").rglob("*") if path.is_file()}
    return {path for path in files if "marks" not in path.parts}


def send(broker, value):
    request(broker, "/topics/public/default/t", {"messages": [{"value": value, "partition": 0}]})


def test_an_older_or_another_database_changes_nothing(
    braidlog,
    node,
    settings,
    postgres,
    tmp_path,
    capsys,
):
    import psycopg

    braidlog("init", "--shards", "4")
    first = node(1).start()
    request(first, "/api/v1/topics/public/default/t", {"partitions": 1}, "PUT")
    send(first, "in the dump")
    assert first.stop() == 0
    [database] = [setting for setting in settings if setting.startswith("shared.database=")]
    name = database.rpartition("/")[2]
    with psycopg.connect(postgres.database, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_older TEMPLATE {name}")
        connection.execute(f"CREATE DATABASE {name}_other")
    again = node(1).start()
    send(again, "after it")
    before = objects_in(tmp_path)
    flags = ["--set", f"{database}_other", "--set", f"shared.store=file://{tmp_path}/other"]
    assert run(["cluster", "init", *flags]) == 0
    for suffix, reason in (("_older", "older than the object store"), ("_other", "is of cluster")):
        changed = [*settings, database + suffix]
        flags = [part for setting in changed for part in ("--set", setting)]
        for command in (["sweep", "--yes"], ["drain", "1"], ["verify"]):
            capsys.readouterr()
            assert run(["cluster", *command, *flags]) == 1
            output = capsys.readouterr()
            assert reason in output.out + output.err
        code, _, text = node(7, database + suffix).run_to_end()
        assert code == 1 and reason in text.splitlines()[-1]
    assert before <= objects_in(tmp_path)
    assert again.stop() == 0
    assert braidlog("verify", "--deep")[0] == 0
