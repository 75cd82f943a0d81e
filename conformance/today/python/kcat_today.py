"""Typical commands of kcat with default settings; see ../README.md.

`python kcat_today.py KCAT COMMAND ADDRESS ...`
"""

import base64
import ctypes
import json
import re
import signal
import subprocess
import sys
import threading

from lines import RECORDS, say

KCAT, COMMAND, ADDRESS, TOPIC = sys.argv[1:5]
BASE = [KCAT, "-b", ADDRESS]
COMMIT_S = 6.5  # kcat commits every 5 s, without any output.
SHARE = re.compile(r"rebalanced .*?(assigned|revoked): ?(.*)")


def run(*arguments, stdin=b""):
    done = subprocess.run([*BASE, *arguments], input=stdin, capture_output=True)
    if done.returncode:
        sys.exit(done.stderr.decode() or "kcat failed")
    return done.stdout.decode()


def produce(codec):
    for key, value, headers in RECORDS:
        named = [part for name, value in headers for part in ("-H", f"{name}={value.decode()}")]
        null = ["-Z"] if value is None else []
        line = (b"" if key is None else key + b":") + (value or b"") + b"\n"
        run("-P", "-t", TOPIC, "-p", "0", "-K:", "-z", codec, *named, *null, stdin=line)
    say(done=True)


def record(line):
    fields = json.loads(line)
    text = fields.get("headers") or []
    headers = [[name, b64(value)] for name, value in zip(text[::2], text[1::2], strict=True)]
    key, value = b64(fields["key"]), b64(fields["payload"])
    say(
        partition=fields["partition"],
        offset=fields["offset"],
        key=key,
        value=value,
        headers=headers,
    )


def b64(text):
    return None if text is None else base64.b64encode(text.encode()).decode()


def read(count):
    for line in run(
        "-C", "-t", TOPIC, "-p", "0", "-o", "beginning", "-c", count, "-J"
    ).splitlines():
        record(line)


def die_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def member(group):
    settings = {
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "auto.offset.reset": "earliest",
    }
    named = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    process = subprocess.Popen(
        [*BASE, *named, "-G", group, "-J", "-u", TOPIC],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_us,
    )

    def shares():
        for line in process.stderr:
            match = SHARE.search(line)
            if match is not None:
                parts = re.findall(r"\[(\d+)\]", match[2]) if match[1] == "assigned" else []
                say(assigned=sorted(map(int, parts)))

    threading.Thread(target=shares, daemon=True).start()
    timer = None
    for line in process.stdout:
        record(line)
        if timer is not None:
            timer.cancel()
        timer = threading.Timer(COMMIT_S, say, kwargs={"committed": True})
        timer.daemon = True
        timer.start()


def admin():
    run("-P", "-t", TOPIC, "-p", "0", stdin=b"one\n")
    listed = json.loads(run("-L", "-J", "-t", TOPIC))
    assert len(listed["topics"][0]["partitions"]) == 3, listed
    assert run("-Q", "-t", f"{TOPIC}:0:-1").split() == [TOPIC, "[0]", "offset", "1"]
    say(done=True)


if __name__ == "__main__":
    commands = {"produce": produce, "read": read, "member": member, "admin": admin}
    commands[COMMAND](*sys.argv[5:])
