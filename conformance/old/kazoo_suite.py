"""`python -m conformance.old.kazoo_suite`: kazoo's own tests against the ZooKeeper listener.

The parts of the suite that start servers are replaced (`python/kazoo_server.py`). Each test that
passes against ZooKeeper 3.4.6 (`RECORDED`, made by `--record` with the server of Kafka 0.8.2.2's
jars) must pass here, except for `EXPECTED`, which has the reasons.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from conformance.ending import end_on_signals
from conformance.old.programs import SOURCES, java_program
from conformance.ports import reserve_ports
from conformance.server import ANY_PORT, RunningBroker
from conformance.today.programs import ProgramUnavailable, cache, run_build

VERSION: Final = "2.11.0"
RECORDED: Final = SOURCES.parent / "vectors" / "kazoo" / "passed-3.4.6.txt"
SUITE_S: Final = 1800
TEST_S: Final = 90
LOOK_S: Final = 0.02
# Tests that pass against 3.4.6 and fail here, with the reason.
EXPECTED: Final[Mapping[str, str]] = {}


def python() -> Path:
    """Return the interpreter of the environment of kazoo's tests. Raises ProgramUnavailable."""
    folder = cache() / f"kazoo-{VERSION}"
    interpreter = folder / "bin" / "python"
    if not (folder / "installed").exists():
        run_build([sys.executable, "-m", "venv", folder], SOURCES)
        needed = [f"kazoo[test]=={VERSION}", "pyjks"]
        run_build([interpreter, "-m", "pip", "install", "-q", *needed], SOURCES)
        (folder / "installed").touch()
    return interpreter


def outcomes(
    address: str, stop: Callable[[], object], run: Callable[[], object], only: str = ""
) -> dict[str, str]:
    """Run the suite; return "passed", "failed" or "skipped" for each test. A failed test of locks
    may wait for its threads for ever: the last name in the output is such a test's.
    """
    with tempfile.TemporaryDirectory(prefix="kazoo-") as scratch:
        folder = Path(scratch)
        results = folder / "results.xml"
        environment = os.environ | {
            "CI": "true",
            "ZOOKEEPER_VERSION": "3.4.6",
            "KAZOO_SERVER": address,
            "KAZOO_CONTROL": scratch,
            "PYTHONPATH": str(SOURCES / "python"),
        }
        command = [str(python()), "-m", "pytest", "-p", "kazoo_server", "-v"]
        command += ["--pyargs", "kazoo.tests", "--timeout", str(TEST_S), "-p", "no:cacheprovider"]
        command += ["--junit-xml", str(results), *(["-k", only] if only else [])]
        ends = threading.Event()
        actions = {"stop": stop, "run": run}
        control = threading.Thread(target=_control, args=(folder, actions, ends))
        control.start()
        try:
            subprocess.run(
                command,
                env=environment,
                cwd=scratch,
                stdout=sys.stderr,
                timeout=SUITE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            sys.exit(f"kazoo's suite did not end within {SUITE_S} s")
        finally:
            ends.set()
            control.join()
        return dict(_results(results))


def _control(
    folder: Path, actions: Mapping[str, Callable[[], object]], ends: threading.Event
) -> None:
    while not ends.wait(LOOK_S):
        for name, action in actions.items():
            request = folder / name
            if request.exists():
                action()
                request.unlink()


def _results(file: Path) -> Iterator[tuple[str, str]]:
    for case in ET.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('kazoo.tests.')}.{case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "passed"
        yield name, "skipped" if "skipped" in kinds else outcome


@contextmanager
def real(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the results against ZooKeeper 3.4.6."""
    program = java_program("0.8.2.2")
    held = ExitStack()
    (port,) = reserve_ports(1, held)
    config = folder / "zookeeper.properties"
    config.write_text(
        f"dataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "maxClientCnxns=0\n"
    )
    command = ["java", "-Xmx256m", "-cp", f"{program.folder}/*"]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
    processes: list[subprocess.Popen[bytes]] = []

    def run() -> None:
        log = folder / "log"
        with open(log, "ab") as output:
            processes.append(subprocess.Popen(command, stdout=output, stderr=output))

    def stop() -> None:
        processes[-1].kill()
        processes[-1].wait()

    run()
    try:
        yield outcomes(f"127.0.0.1:{port}", stop, run)
    finally:
        stop()
        held.close()


def against_broker(only: str = "") -> dict[str, str]:
    """Return the results against a new broker."""
    listen = {"kafka": ANY_PORT, "zookeeper": ANY_PORT}
    with RunningBroker(listen=listen, others=False) as broker:
        return outcomes(broker.addresses["zookeeper"], broker.stop, broker.start, only)


def judged(results: Mapping[str, str], wanted: Sequence[str]) -> list[str]:
    """Return the tests that should pass and did not, and expected failures that passed."""
    failed = [name for name in wanted if results.get(name) != "passed" and name not in EXPECTED]
    better = [name for name in EXPECTED if results.get(name) == "passed"]
    return failed + [f"{name} passes, remove it from EXPECTED" for name in better]


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 1 if a test fails that should pass."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.old.kazoo_suite", description=__doc__
    )
    parser.add_argument("--record", action="store_true", help="run against ZooKeeper 3.4.6")
    parser.add_argument("--only", default="", help="as pytest's -k")
    options = parser.parse_args(arguments)
    try:
        python()
        if options.record:
            with tempfile.TemporaryDirectory() as scratch, real(Path(scratch)) as results:
                passed = sorted(name for name in results if results[name] == "passed")
                RECORDED.parent.mkdir(parents=True, exist_ok=True)
                RECORDED.write_text("".join(f"{name}\n" for name in passed))
                print(f"{len(passed)} of {len(results)} tests passed")
            return 0
    except ProgramUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    results = against_broker(options.only)
    wanted = [name for name in RECORDED.read_text().split() if not options.only or name in results]
    failed = judged(results, wanted)
    for line in failed:
        print(f"FAILED: {line}")
    print(f"{len(wanted) - len(failed)} of {len(wanted)} tests that pass on 3.4.6 pass here")
    return int(bool(failed))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))
