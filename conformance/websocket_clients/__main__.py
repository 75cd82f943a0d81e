"""`python -m conformance.websocket_clients`: programs that use Pulsar's WebSocket API.

Python's `websocket-client`, the JDK's client and a page in Debian's Chromium (by playwright)
produce, consume and read. A package that is not installed leaves its program out, with a line.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from conformance.server import RunningBroker

HERE: Final = Path(__file__).parent
COUNT: Final = 20
RUN_S: Final = 120
CHROMIUM: Final = "/usr/bin/chromium"
Dialogue = Callable[[str, str], Sequence[Sequence[str]]]


class NotInstalled(Exception):
    """A program's package is missing; the text names it."""


def python(url: str, topic: str) -> Sequence[Sequence[str]]:
    """Run the dialogue with the package `websocket-client`. Raises NotInstalled."""
    try:
        import websocket
    except ImportError as error:
        raise NotInstalled("websocket-client") from error

    def take(connection: Any) -> list[str]:
        payloads = []
        while len(payloads) < COUNT:
            message = json.loads(connection.recv())
            payloads.append(base64.b64decode(message["payload"]).decode())
            connection.send(json.dumps({"messageId": message["messageId"]}))
        connection.close()
        return payloads

    target = f"{url}/ws/v2/consumer/{topic}/python?subscriptionType=Shared"
    consumer = websocket.create_connection(target, timeout=RUN_S)
    producer = websocket.create_connection(f"{url}/ws/v2/producer/{topic}", timeout=RUN_S)
    for number in range(COUNT):
        payload = base64.b64encode(f"python {number}".encode()).decode()
        producer.send(json.dumps({"payload": payload, "properties": {"a": "b"}}))
        assert json.loads(producer.recv())["result"] == "ok"
    target = f"{url}/ws/v2/reader/{topic}?messageId=earliest"
    return take(consumer), take(websocket.create_connection(target, timeout=RUN_S))


def java(url: str, topic: str) -> Sequence[Sequence[str]]:
    """Run the dialogue with the JDK's client. Raises NotInstalled."""
    command = ["java", str(HERE / "Dialogue.java"), url, topic, str(COUNT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    except FileNotFoundError as error:
        raise NotInstalled("java") from error
    assert not done.returncode, done.stderr
    return [line.split(",") for line in done.stdout.splitlines()]


def page(url: str, topic: str) -> Sequence[Sequence[str]]:
    """Run the dialogue in a page. Raises NotInstalled."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise NotInstalled("playwright") from error
    if not Path(CHROMIUM).exists():
        raise NotInstalled("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page()
        opened.goto((HERE / "page.html").as_uri())
        call = "([url, topic, count]) => dialogue(url, topic, count)"
        lists: Sequence[Sequence[str]] = opened.evaluate(call, [url, topic, COUNT])
        browser.close()
        return lists


PROGRAMS: Final[dict[str, Dialogue]] = {"python": python, "java": java, "page": page}


def main() -> int:
    """Return 1 if a program did not get what it sent."""
    faults = 0
    with RunningBroker() as broker:
        for name, dialogue in PROGRAMS.items():
            expected = [f"{name} {number}" for number in range(COUNT)]
            try:
                lists = dialogue(
                    f"ws://{broker.addresses['http']}", f"persistent/public/default/{name}"
                )
            except NotInstalled as error:
                print(f"{name}: left out, {error} is not installed: python -m pip install {error}")
                continue
            consumed, read = ([*words] for words in lists)
            is_right = consumed == expected and read == expected
            faults += not is_right
            print(f"{name}: {'produced, consumed and read' if is_right else lists}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
