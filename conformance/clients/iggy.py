"""Every published Python client of Iggy that can run on this machine, each in a separate folder.

The clients share module names, so each process has a single client's folder on its path. The first
use of a client fills the folder with a pinned package from pip's package index. If that fails, the
client is left out, with the reason.
"""

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL_TIMEOUT_S = 180


@dataclass(frozen=True)
class IggyClient:
    """A client: its package, its dialect, and the Python version that the package needs."""

    package: str
    version: str
    dialect: str
    python: str = ""  # The series that has wheels; empty: the project's Python.
    takes_address: bool = True  # False: the client always connects to 127.0.0.1:8090.

    def __str__(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def number(self) -> tuple[int, ...]:
        """Return the version for comparisons, without the number of a development build."""
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


CLIENTS = (
    IggyClient("iggy-py", "0.1.0", "D1a", python="3.10", takes_address=False),
    IggyClient("iggy-py", "0.2.2", "D1b", takes_address=False),
    IggyClient("iggy-py", "0.2.4", "D2", takes_address=False),
    IggyClient("iggy-py", "0.2.7", "D2"),
    IggyClient("iggy-py", "0.4.0", "D2"),
    IggyClient("apache-iggy", "0.5.0", "D3"),
    IggyClient("apache-iggy", "0.6.0", "D4"),
    IggyClient("apache-iggy", "0.7.0", "D5"),
    IggyClient("apache-iggy", "0.8.0", "D5"),
    IggyClient("apache-iggy", "0.9.0", "V"),
    IggyClient("apache-iggy", "0.9.1.dev5", "W"),
)


class NoClient(Exception):
    """The client cannot be installed here; the text gives the reason."""


def folder_of(client: IggyClient) -> Path:
    """Return the client's folder; install a missing client. Raises NoClient."""
    series = client.python or "{}.{}".format(*sys.version_info)
    folder = cache_folder() / f"{client.package}-{client.version}-{series}"
    if folder.is_dir():
        return folder
    being_filled = folder.with_suffix(f".{os.getpid()}")
    command = [python_of(client), "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--disable-pip-version-check", "--target", str(being_filled)]
    command += [f"{client.package}=={client.version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NoClient(f"{client} took too long to install") from None
    if done.returncode:
        shutil.rmtree(being_filled, ignore_errors=True)
        last_line = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoClient(f"{client} cannot be installed: {last_line}")
    try:
        being_filled.rename(folder)
    except OSError:  # Another process was quicker.
        shutil.rmtree(being_filled, ignore_errors=True)
    return folder


def python_of(client: IggyClient) -> str:
    """Return the interpreter for a client. Raises NoClient."""
    return sys.executable if not client.python else find_python(client.python)


@functools.cache
def find_python(series: str) -> str:
    """Return an interpreter of that series. Raises NoClient."""
    candidates = [shutil.which(f"python{series}")]
    candidates += [
        str(path / "bin/python") for path in Path.home().glob(f".pyenv/versions/{series}.*")
    ]
    for path in filter(None, candidates):
        try:
            if not subprocess.run([path, "-c", ""], capture_output=True, timeout=30).returncode:
                return path
        except OSError:
            continue
    raise NoClient(f"there is no Python {series}")


def cache_folder() -> Path:
    """Return the folder of installed clients."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "braidlog" / "iggy-clients"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
