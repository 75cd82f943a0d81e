"""The client libraries, with versions, and the environment of each library.

Compatible libraries share the project's own environment (extra `conformance`). An incompatible
version gets a separate environment, created when a case first needs the client.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class ClientLibrary:
    """A version of a client library; `environment` None means the project's own."""

    name: str
    protocol: str
    driver: str
    requirement: str
    environment: str | None = None
    note: str = ""  # Distinguishes two entries of the same library and version.

    @property
    def library(self) -> str:
        """Return the package's name."""
        return self.requirement.partition("==")[0]

    @property
    def version(self) -> str:
        """Return the version, as the matrix shows it beside the name."""
        return self.requirement.partition("==")[2]


class LibraryUnavailable(Exception):
    """The client cannot be installed here; the case is skipped with this reason."""


CLIENTS = {
    client.name: client
    for client in (
        ClientLibrary("kafka-python", "kafka", "kafka_python", "kafka-python==3.0.12"),
        ClientLibrary(
            "kafka-python-today",
            "kafka",
            "kafka_python_today",
            "kafka-python==3.0.12",
            note="defaults",
        ),
        ClientLibrary(
            "kafka-python-2", "kafka", "kafka_python", "kafka-python==2.0.6", "kafka-python-2"
        ),
        ClientLibrary(
            "confluent-kafka", "kafka", "confluent_kafka_driver", "confluent-kafka==2.16.1"
        ),
        ClientLibrary("pulsar-client", "pulsar", "pulsar_client", "pulsar-client==3.13.0"),
        ClientLibrary(
            "pulsar-client-31", "pulsar", "pulsar_client", "pulsar-client==3.1.0", "pulsar-31"
        ),
        ClientLibrary("iggy-py", "iggy", "iggy_py_driver", "iggy-py==0.4.0"),
        ClientLibrary("httpx", "http", "httpx_driver", "httpx==0.28.1"),
    )
}

# Hand-made frames, for requests that no library can express.
RAW = "raw frames"


def python_for(client: ClientLibrary) -> Path:
    """Return the interpreter of the client's environment; create a missing environment.

    Raises:
        LibraryUnavailable: the library cannot be installed here.
    """
    if client.environment is None:
        python = Path(sys.executable)
        if _has(python, client):
            return python
        raise LibraryUnavailable(f"{client.requirement} is not in the project's environment")
    folder = ROOT / ".venv-conformance" / client.environment
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if not _has(python, client):
        install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        done = subprocess.run([*install, client.requirement], capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise LibraryUnavailable(f"pip install {client.requirement}: {lines[-1]}")
    return python


def _has(python: Path, client: ClientLibrary) -> bool:
    name, _, version = client.requirement.partition("==")
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    return done.stdout.strip() == version
