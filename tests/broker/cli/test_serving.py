"""Simple arguments of `serve` are parsed as cyclopts parses them; a broker imports only needed
modules.
"""

import subprocess
import sys

import pytest

from braidlog.broker.cli.commands import app
from braidlog.broker.cli.serving import ServeFlags, plain_flags

# Modules that a broker on its own disk, without external logins, must not import.
UNUSED = {
    "cyclopts",
    "rich",
    "argon2",
    "fastavro",
    "prometheus_client",
    "re2",
    "pygments",
    "numpy",
    "pyarrow",
    "pyspark",
    "obstore",
    "psycopg",
    "construct",
    "storage.shared",
    "braidlog.storage.export",
    "braidlog.broker.cluster_parts",
}

PLAIN = [
    [],
    ["--data-dir", "./data"],
    ["--data-dir=./data", "--config", "a=b.toml", "--ready-file=x y"],
    ["--listen", "kafka=127.0.0.1:9092", "--listen=http=off", "--set", "a.b=c=d", "--set=e=1 2"],
    ["--set", "x", "--listen", "=", "--data-dir", "ä"],
]

NOT_PLAIN = [
    ["--help"],
    ["-h"],
    ["--data-dir"],
    ["--data-dir="],
    ["--data-dir", "a", "--data-dir", "b"],
    ["--data-dir", "--config"],
    ["--listen", "-1"],
    ["--bogus", "1"],
    ["./data"],
    ["--", "x"],
    ["--data-di", "x"],
]


def as_cyclopts_reads(arguments):
    _, bound, _ = app.parse_args(["serve", *arguments], exit_on_error=False, print_error=False)
    values = bound.arguments
    return ServeFlags(
        values.get("data_dir"),
        values.get("config"),
        values.get("listen") or [],
        values.get("set_") or [],
        values.get("ready_file"),
    )


@pytest.mark.parametrize("arguments", PLAIN)
def test_plain_flags_are_read_as_cyclopts_reads_them(arguments):
    flags = plain_flags(["serve", *arguments])
    assert flags is not None
    assert flags == as_cyclopts_reads(arguments)


@pytest.mark.parametrize("arguments", NOT_PLAIN)
def test_complex_arguments_are_left_to_cyclopts(arguments):
    assert plain_flags(["serve", *arguments]) is None


def test_other_commands_are_left_to_cyclopts():
    assert plain_flags([]) is None
    assert plain_flags(["topics", "list"]) is None
    assert plain_flags(["--data-dir", "serve"]) is None


# Run a broker with every listener until ready, and print the imported modules.
PROGRAM = """
import os, signal, sys, threading, time
from braidlog.broker.cli.main import run

def stop(folder):
    while not os.path.exists(folder + "/ready"):
        time.sleep(0.01)
    print("loaded", *sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

folder = sys.argv[1]
threading.Thread(target=stop, args=[folder], daemon=True).start()
listen = [f"--listen={name}=127.0.0.1:0" for name in ("kafka", "pulsar", "iggy", "http")]
sys.exit(run(["serve", "--data-dir", folder + "/data", "--ready-file", folder + "/ready", *listen]))
"""


@pytest.mark.slow
def test_a_plain_broker_imports_no_unused_module(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    loaded = next(line for line in ended.stdout.splitlines() if line.startswith("loaded")).split()
    assert "braidlog.protocols.http.server" in loaded
    assert UNUSED.isdisjoint(loaded), UNUSED.intersection(loaded)
