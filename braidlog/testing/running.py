"""Runs a broker with gates and faults inside a trio run."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import trio
from msgspec.structs import replace

from braidlog.broker.access.bearer import TokenVerifier
from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import OFF, Config, load, parse_address
from braidlog.broker.process import STOP_SIGNALS, serve_listeners
from braidlog.broker.runtime.loop_clock import LoopClock
from braidlog.broker.server import adapters
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.listener import make_listeners
from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.log.local_files import LocalFiles
from braidlog.testing.clock_and_disk import FillableDisk, MovableClock
from braidlog.testing.control import serve_control
from braidlog.testing.gates import Gate
from braidlog.testing.refusals import Refusals, refusing_directory, refusing_parts

MEMORY = Path("/dev/shm")
ANY_PORT = "127.0.0.1:0"
Setting = tuple[str, str, str]  # Dotted name, value, and its origin for messages.
PROTOCOLS = ("kafka", "pulsar", "iggy", "http")
# Settings of a broker for tests; a test may set others.
SETTINGS: Mapping[str, str] = {
    "log.retention_check_ms": "200",
    "shutdown.grace_s": "0.1",
    "loop_turn_log_ms": "none",
}


for protocol in PROTOCOLS:  # Imported with this module, so that a start is quick.
    adapters.load(protocol)


@dataclass(slots=True)
class Faults:
    """The broker's own parts that faults change."""

    clock: MovableClock = field(default_factory=MovableClock)
    disk: FillableDisk = field(default_factory=FillableDisk)
    refusals: Refusals = field(default_factory=Refusals)


@dataclass(slots=True)
class Running:
    """A serving broker with gates and faults, for use inside the same trio run."""

    broker: Broker
    gates: Mapping[str, Gate]
    faults: Faults
    control_address: tuple[str, int]
    broker_addresses: Mapping[str, tuple[str, int]]
    token: trio.lowlevel.TrioToken

    @property
    def addresses(self) -> dict[str, str]:
        """The clients' addresses of the listeners, and the control address."""
        addresses = {name: address_text(gate.address) for name, gate in self.gates.items()}
        return addresses | {"control": address_text(self.control_address)}

    def heal(self) -> None:
        """End all faults, but for a clock that was moved."""
        for gate in self.gates.values():
            gate.heal()
        self.faults.disk.is_full = False
        self.faults.refusals.heal()

    def stop(self) -> None:
        """Begin to stop."""
        self.broker.stop()


def run_broker(
    settings: Sequence[Setting], started: Callable[[Running], object], *, signals: bool = False
) -> None:
    """Run a broker until `Running.stop`, or with `signals` until SIGTERM or SIGINT; call `started`
    when every listener accepts.

    Raises ConfigError for wrong settings, OSError, and the errors of `Broker.open`.
    """
    clock = LoopClock()
    folder = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="braidlog-", dir=folder) as data_dir:
        trio.run(_run, data_dir, settings, started, clock, signals, clock=clock)


async def _run(
    data_dir: str,
    settings: Sequence[Setting],
    started: Callable[[Running], object],
    clock: LoopClock,
    signals: bool,
) -> None:
    await clock.find_epoll()
    config = _config(data_dir, settings)
    faults = Faults()
    opened = DataDir.open(data_dir, LocalFiles(data_dir, faults.disk))
    broker = Broker.open(
        config,
        TokenVerifier(config.access),
        refusing_directory(opened, faults.refusals),
        clock=faults.clock,
        make_parts=refusing_parts(opened, faults.refusals),
    )
    try:
        await _serve(broker, config, faults, started, signals)
    except BaseException:  # After any error, release the lock.
        broker.abandon()
        raise
    broker.close()


async def _serve(
    broker: Broker,
    config: Config,
    faults: Faults,
    started: Callable[[Running], object],
    signals: bool,
) -> None:
    gates = _gates(config)
    with ExitStack() as opened:
        for gate in gates.values():
            opened.callback(gate.close)
        await _serve_behind(gates, broker, config, faults, started, signals)


async def _serve_behind(
    gates: Mapping[str, Gate],
    broker: Broker,
    config: Config,
    faults: Faults,
    started: Callable[[Running], object],
    signals: bool,
) -> None:
    listeners = make_listeners(_behind(gates, config))
    with socket.create_server(("127.0.0.1", 0)) as control:
        control.setblocking(False)
        async with trio.open_nursery() as root:

            def opened() -> None:
                running = Running(
                    broker,
                    gates,
                    faults,
                    control.getsockname(),
                    {listener.name: listener.bound for listener in listeners},
                    trio.lowlevel.current_trio_token(),
                )
                for listener in listeners:
                    root.start_soon(gates[listener.name].run, listener.bound)
                root.start_soon(serve_control, running, control)
                started(running)

            root.start_soon(broker.run)
            if signals:
                await root.start(_stop_on_signal, broker)
            await serve_listeners(broker, listeners, opened)
            await broker.durability.all_durable()
            root.cancel_scope.cancel()


async def _stop_on_signal(
    broker: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(*STOP_SIGNALS) as received:
        task_status.started()
        async for _ in received:
            broker.stop()


def _config(data_dir: str, settings: Sequence[Setting]) -> Config:
    """Return the settings of a test's broker. Raises ConfigError."""
    chosen = [(key, value, f"braidlog.testing {key}") for key, value in SETTINGS.items()]
    chosen += [(f"listeners.{name}.listen", ANY_PORT, name) for name in PROTOCOLS]
    chosen += [*settings, ("data_dir", data_dir, "braidlog.testing")]
    # The settings come from the test alone, not from files and the environment of the user.
    return load(file=os.devnull, environment={}, flags=chosen)


def _gates(config: Config) -> dict[str, Gate]:
    """Return a gate at the address of each listener. Raises OSError."""
    addresses = {
        name: listener.listen for name, listener in config.listeners.items() if listener.listen
    }
    return {
        name: Gate(parse_address(address)) for name, address in addresses.items() if address != OFF
    }


def _behind(gates: Mapping[str, Gate], config: Config) -> Config:
    """Return the settings with each listener on a free port, advertising its gate's address."""
    behind = {
        name: replace(listener, listen=ANY_PORT, advertised=gates[name].address)
        if name in gates
        else listener
        for name, listener in config.listeners.items()
    }
    return replace(config, listeners=behind)
