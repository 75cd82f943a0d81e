"""The life of a broker process: recover, open and announce listeners, serve, and stop cleanly.

Knows signals, files and exit codes, no adapter. A failure to start is a clear line and an exit
code, never a traceback; a stop by signal finishes begun requests, syncs all data and exits with 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import structlog
import trio

from braidlog.broker.access.bearer import TokenVerifier
from braidlog.broker.access.first_admin import make_first_admin
from braidlog.broker.broker import Broker
from braidlog.broker.config import logging as logs
from braidlog.broker.config.settings import Config, ConfigError
from braidlog.broker.runtime.garbage import no_searches, search_regularly, short_searches
from braidlog.broker.runtime.heap import bound_heap, trim_heap
from braidlog.broker.runtime.loop_clock import LoopClock
from braidlog.broker.runtime.plain import is_plain
from braidlog.broker.runtime.supervisor import Supervisor
from braidlog.broker.server.adapters import Starting, Working, is_framed, is_serving
from braidlog.broker.server.connection import address_text
from braidlog.broker.server.listener import Listener, accept, make_listeners
from braidlog.broker.server.opened import OpenListener
from braidlog.broker.server.tls import CERTIFICATE_WARNING_DAYS
from braidlog.storage.directory.first_look import check_folder
from braidlog.storage.errors import (
    DamagedLog,
    NotADataDirectory,
    StorageError,
    StorageFailed,
    reason_of,
)
from braidlog.storage.formats import quick

if TYPE_CHECKING:
    from braidlog.storage.shared.shared_dir import SharedDir

EXIT_FAILED, EXIT_USAGE = 1, 2
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

WITH_A_LOGIN = "with a login, as access.required wants: docs/security.md shows clients"
OVER_TLS = "over TLS, with a login where [access] requires one: docs/security.md shows clients"

log = structlog.get_logger()


def serve(config: Config, *, ready_file: str | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code of the process."""
    logs.configure(level=config.log_level, log_format=config.log_format)
    try:
        with no_searches():  # The adapters' modules.
            listeners = make_listeners(config)
        verifier = TokenVerifier(config.access)
    except ConfigError as error:
        return _refuse(str(error), EXIT_USAGE)
    except ValueError as error:
        return _refuse(f"access: {error}", EXIT_USAGE)
    if not listeners:
        return _refuse("every listener is off: nobody could reach this broker", EXIT_USAGE)
    try:
        if ready_file is not None and os.path.exists(ready_file):
            # Of an earlier run: a program that waits for the file must not see it.
            os.unlink(ready_file)
    except OSError as error:
        return _refuse(f"ready file {ready_file}: {error.strerror}", EXIT_FAILED)
    if config.storage.mode == "local":  # A cluster's cache folder has another mark.
        try:
            check_folder(config.data_dir, _names_inside(config.data_dir, ready_file))
        except NotADataDirectory as error:
            return _refuse(f"data_dir: {error}", EXIT_USAGE)
        except StorageError as error:
            return _refuse(str(error), EXIT_FAILED)
    _take_descriptors()
    if is_plain():
        return trio.run(_run, config, verifier, listeners, ready_file, None)
    bound_heap()
    with short_searches():
        clock = LoopClock()
        return trio.run(_run, config, verifier, listeners, ready_file, clock, clock=clock)


def _names_inside(folder: str, path: str | None) -> tuple[str, ...]:
    """Return the name of a file if the file lies in the folder."""
    if path is None or os.path.realpath(os.path.dirname(path)) != os.path.realpath(folder):
        return ()
    return (os.path.basename(path),)


def _take_descriptors() -> None:
    """Raise the limit of open files as far as allowed. The limit is usually 1024, for programs that
    use select(2); a round that syncs a thousand partitions holds a file of each open.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve_listeners(
    broker: Broker, listeners: Sequence[Listener], opened: Callable[[], None]
) -> None:
    """Open the listeners, call `opened`, serve until `broker.stopping` is set, and drain.

    Connections then have `shutdown.grace_s` to finish begun requests. Raises ConfigError for an
    unavailable address, and in a group the errors of `opened`. Always closes the listeners.
    """
    try:
        await make_first_admin(broker)
        for listener in listeners:
            if isinstance(listener.adapter, Starting):
                await listener.adapter.start(broker, listener.options, loopback=listener.loopback)
            listener.open()
            broker.listeners[listener.name] = listener
            _warn_of_certificate(listener, broker)
            if not listener.loopback and (listener.tls is None or not broker.access.rules):
                log.warning("insecure_listener", listener=listener.name)
        async with trio.open_nursery() as serving:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    _serve_listener(listener, broker, accepting, serving)
                opened()
                broker.ready.set()
                await broker.stopping.wait()
                accepting.cancel_scope.cancel()
            serving.cancel_scope.deadline = trio.current_time() + broker.config.shutdown.grace_s
            for connection in tuple(broker.connections):
                connection.drain()
        if serving.cancel_scope.cancelled_caught:
            log.warning("connections_cut_off", grace_s=broker.config.shutdown.grace_s)
    finally:
        for listener in listeners:
            listener.close()


def _serve_listener(
    listener: Listener, broker: Broker, accepting: trio.Nursery, serving: trio.Nursery
) -> None:
    """Start the tasks of an open listener."""
    if is_framed(listener.adapter):
        accepting.start_soon(accept, listener, broker, serving)
    else:
        serving.start_soon(_serve_whole, listener, broker)
    if isinstance(listener.adapter, Working):
        accepting.start_soon(listener.adapter.work, broker, listener.options)


async def _run(
    config: Config,
    verifier: TokenVerifier,
    listeners: Sequence[Listener],
    ready_file: str | None,
    clock: LoopClock | None,
) -> int:
    shared: SharedDir | None = None
    supervisor = Supervisor()
    if clock is not None:
        await clock.find_epoll()
    try:
        if config.storage.mode == "shared":
            shared = await _join_cluster(config)
            if shared is None:
                return 0
        with no_searches():  # Each of 20,000 partitions is a hundred objects.
            broker = _opened(config, verifier, shared)
    except DamagedLog as error:
        way_past = "" if shared or config.storage.mode == "shared" else f"; {_way_past(config)}"
        return _refuse(f"{error}{way_past}", EXIT_FAILED)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{named}{reason_of(error)}", EXIT_FAILED)
    except (StorageError, ConfigError) as error:
        return _refuse(str(error), EXIT_FAILED)
    except ImportError as error:
        return _refuse(f"storage.mode shared needs the extra `shared`: {error}", EXIT_FAILED)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as root:
            await root.start(_watch_signals, broker)
            root.start_soon(broker.run)
            if shared is not None:
                await _take_part(broker, listeners, root)
            if clock is not None:
                root.start_soon(search_regularly)
                root.start_soon(trim_heap)
            root.start_soon(supervisor.run, broker.stopping)

            def opened() -> None:
                _announce(broker, listeners, ready_file)
                supervisor.ready()

            await serve_listeners(broker, listeners, opened)
            await broker.durability.all_durable()
            root.cancel_scope.cancel()
    except* (StorageFailed, ConfigError, DamagedLog) as group:
        failure = first_error(group)
    if isinstance(failure, StorageFailed | DamagedLog):
        broker.abandon()
        return _refuse(f"storage failed, stopped at once: {failure}", EXIT_FAILED)
    try:
        broker.close()
    except StorageFailed as error:
        return _refuse(f"storage failed while stopping: {error}", EXIT_FAILED)
    if failure is not None:
        return _refuse(str(failure), EXIT_FAILED)
    for number in STOP_SIGNALS:  # The stop was clean: another signal must not say otherwise.
        signal.signal(number, signal.SIG_IGN)
    log.info("stopped")
    return 0


def _opened(config: Config, verifier: TokenVerifier, shared: SharedDir | None) -> Broker:
    """Return the opened broker of that configuration. Raises as `Broker.open`."""
    if shared is None:
        return Broker.open(config, verifier)
    # A local broker does not need these modules.
    from braidlog.broker.cluster_parts import ClusterParts

    return Broker.open(
        config, verifier, shared, make_parts=lambda foundation: ClusterParts(foundation, shared)
    )


async def _take_part(broker: Broker, listeners: Sequence[Listener], root: trio.Nursery) -> None:
    """Take ownership of this broker's part of the cluster, and announce it to the other brokers.
    Return once clients can be served. Raises ConfigError.
    """
    # A local broker does not need these modules.
    from braidlog.broker.cluster_start import take_part

    await take_part(broker, listeners, root)


async def _join_cluster(config: Config) -> SharedDir | None:
    """Begin a session in the cluster; return None if a signal to stop came first."""
    # A local broker does not need these modules.
    from braidlog.broker.cluster.join_cluster import join_cluster

    joined: SharedDir | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_on_signal, nursery.cancel_scope)
            joined = await join_cluster(config)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:  # A single cause, which the caller reports in a line.
        raise first_error(group) from None
    return joined


async def _cancel_on_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        async for _ in signals:
            scope.cancel()


async def _serve_whole(listener: Listener, broker: Broker) -> None:
    """Run an adapter's server; if the server fails, the other listeners continue."""
    assert is_serving(listener.adapter) and listener.socket is not None
    try:
        await listener.adapter.serve(
            broker, [listener.socket], listener.options, broker.stopping, tls=listener.tls
        )
    except Exception:  # A bug of an adapter's server: the other listeners continue.
        log.exception("listener_failed", listener=listener.name)


async def _watch_signals(
    broker: Broker, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Drain at the first SIGTERM or SIGINT, and end the process at once at the second: nothing
    durable depends on a clean end. SIGHUP reloads the certificates and reopens the audit log's
    file.
    """
    for stop in STOP_SIGNALS:  # In force once the receiver is closed, for the rest of a stop.
        signal.signal(stop, _stop_at_once)
    with trio.open_signal_receiver(*STOP_SIGNALS, signal.SIGHUP) as signals:
        async with trio.open_nursery() as leaving:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    _reload_certificates(broker)
                    broker.audit.reopen()
                    continue
                if broker.is_leaving:
                    _stop_at_once(number)
                name = signal.Signals(number).name
                log.info("stopping", signal=name, connections=len(broker.connections))
                broker.begin_leaving()
                leaving.start_soon(broker.leave)


def _stop_at_once(number: int, _: object = None) -> NoReturn:
    # Not by print: the signal may interrupt a line of the log.
    line = f"braidlog: stopped at once by a second {signal.Signals(number).name}\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode())
    os._exit(128 + number)


def _reload_certificates(broker: Broker) -> None:
    """Use the present content of the certificate files for new connections. Log the files that were
    read again, and that settings were not.
    """
    count = sum(listener.tls is not None for listener in broker.listeners.values())
    log.info("reloaded", listeners=count, audit=broker.audit.is_on, settings="need a restart")
    for listener in broker.listeners.values():
        if listener.tls is None:
            continue
        try:
            listener.tls.reload()
        except ValueError as error:
            log.error("certificate_not_reloaded", listener=listener.name, reason=str(error))
        else:
            log.info("certificate_reloaded", listener=listener.name)
            _warn_of_certificate(listener, broker)


def _warn_of_certificate(listener: OpenListener, broker: Broker) -> None:
    """Log a certificate that has ended, or that ends within days."""
    days = None if listener.tls is None else listener.tls.days_left(broker.now_us())
    if days is not None and days < CERTIFICATE_WARNING_DAYS:
        event = "certificate_has_ended" if days < 0 else "certificate_ends_soon"
        log.warning(event, listener=listener.name, days_left=days)


def _announce(broker: Broker, listeners: Sequence[Listener], ready_file: str | None) -> None:
    """Print the addresses of the listeners and write the ready file. Raises ConfigError."""
    print(f"braidlog {broker.version} serves {broker.data_dir}")
    width = max((len(listener.name) for listener in listeners), default=0)
    for listener in listeners:
        host, port = listener.bound
        print(f"  {listener.name:<{width}}  {address_text(listener.bound)}")
        if listener.tls is not None:
            how = OVER_TLS
        elif broker.config.access.required and listener.principal is None:
            how = WITH_A_LOGIN
        else:
            how = listener.adapter.describe(host, port, listener.options)
        print(f"  {'':<{width}}    {how}")
    sys.stdout.flush()
    if ready_file is not None:
        addresses = {listener.name: address_text(listener.bound) for listener in listeners}
        write_ready_file(ready_file, addresses)
    log.info(
        "started",
        data_dir=broker.data_dir,
        topics=len(broker.topics),
        hot_loops=quick.LANGUAGE,
    )


def write_ready_file(path: str, addresses: Mapping[str, str]) -> None:
    """Write the process id and the addresses of the listeners under another name, then rename the
    file, so that no reader sees half of it. Raises ConfigError.
    """
    partial = f"{path}.{os.getpid()}.new"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), "listeners": addresses}) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"ready file {path}: {error.strerror}") from error


def first_error(error: BaseException) -> BaseException:
    """Return the first single error of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _way_past(config: Config) -> str:
    """Return the commands for an operator of a broker that does not start because of a
    damaged log.
    """
    place = f"--data-dir {shlex.quote(str(config.data_dir))}"
    return f"`braidlog log verify {place}` tells all of it, `braidlog log repair {place}` mends it"


def _refuse(reason: str, code: int) -> int:
    """Print a line for the operator, whatever the log's format; return the exit code."""
    print(f"braidlog: {' '.join(reason.split())}", file=sys.stderr, flush=True)
    return code
