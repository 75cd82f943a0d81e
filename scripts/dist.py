"""Build and check a release into dist/: an sdist, a wheel for each processor, and a pure wheel.

`make dist` runs this program in its own environment (requirements/dist.txt). `zig cc` compiles the
extension for glibc 2.17, for this processor and the other one. The checks are those of the Python
packaging tools; each wheel that this machine can run is installed into a fresh environment of every
Python at hand, and a broker answers there. Nothing is uploaded.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
GLIBC = "2.17"
# Processor: the tag of the wheel. manylinux2014 is glibc 2.17 (PEP 600).
PLATFORMS = {"x86_64": "manylinux2014_x86_64", "aarch64": "manylinux2014_aarch64"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LEFT_OUT = (".*", "__pycache__", "*.so", "build", "dist", "*.egg-info", "data")
EXTENSION = "[[tool.setuptools.ext-modules]]"
SETTINGS_AFTER = "[tool.ruff]"
# A program with the wheel alone: start a broker, and ask each listener's port for a connection.
TRIAL = """
import json, socket, urllib.request
from braidlog.storage.formats.quick import LANGUAGE
from braidlog.testing import Braidlog
with Braidlog() as broker:
    topic = broker.create_topic("orders")
    body = json.dumps({"messages": [{"value": "first"}]}).encode()
    url = f"{broker.http}/topics/persistent/public/default/{topic}"
    head = {"Content-Type": "application/json"}
    answer = json.load(urllib.request.urlopen(urllib.request.Request(url, body, head)))
    assert answer["messagePublishResults"][0]["errorCode"] == 0, answer
    for address in (broker.kafka, broker.iggy, broker.pulsar.removeprefix("pulsar://")):
        host, port = address.split(":")
        socket.create_connection((host, int(port))).close()
print("hot loops run in", LANGUAGE)
"""


def main() -> int:
    """Build, check and try everything; return the exit code."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        shutil.copytree(ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        build(source, "--sdist")
        change(source / "pyproject.toml", need_extension)
        for processor, tag in PLATFORMS.items():
            build(source, "--wheel", **compiler(processor, tag))
        change(source / "pyproject.toml", leave_extension_out)
        build(source, "--wheel")
    check_contents()
    write_bill_of_materials()
    for wheel in sorted(DIST.glob("*.whl")):
        if "aarch64" not in wheel.name or os.uname().machine == "aarch64":
            try_wheel(wheel)
    write_sums()
    return 0


def build(source: Path, kind: str, **environment: str) -> None:
    """Build an sdist or a wheel into dist/, with this environment's setuptools."""
    shutil.rmtree(source / "build", ignore_errors=True)
    command = ["build", "--no-isolation", kind, "--outdir", str(DIST), str(source)]
    run(*command, environment=environment)


def compiler(processor: str, tag: str) -> Mapping[str, str]:
    """Return the environment in which setuptools compiles for a processor."""
    zig = f"{sys.executable} -m ziglang cc -target {processor}-linux-gnu.{GLIBC}"
    return {
        "CC": zig,
        "LDSHARED": f"{zig} -shared -s",
        "CFLAGS": "-O3 -fno-sanitize=undefined",
        "_PYTHON_HOST_PLATFORM": f"linux-{processor}",
        "DIST_EXTRA_CONFIG": str(platform_settings(tag)),
    }


def platform_settings(tag: str) -> Path:
    """Return a file with the wheel's platform tag, as setuptools reads it."""
    path = DIST / f".{tag}.cfg"
    path.write_text(f"[bdist_wheel]\nplat_name = {tag}\n")
    return path


def change(path: Path, to: Callable[[str], str]) -> None:
    """Change a file of the copy. Ends the program if nothing changes."""
    text = path.read_text()
    changed = to(text)
    if changed == text:
        raise SystemExit(f"{path}: {to.__name__} found nothing to change")
    path.write_text(changed)


def need_extension(project: str) -> str:
    """Return the description of the project with an extension that must compile."""
    return project.replace("\noptional = true\n", "\noptional = false\n")


def leave_extension_out(project: str) -> str:
    """Return the description of the project without the extension."""
    head, _, rest = project.partition(EXTENSION)
    return head + SETTINGS_AFTER + rest.partition(SETTINGS_AFTER)[2]


def check_contents() -> None:
    """Check names, contents and links of what was built."""
    for path in DIST.glob(".*.cfg"):
        path.unlink()
    built = sorted(DIST.iterdir())
    wheels = [path for path in built if path.suffix == ".whl"]
    run("twine", "check", "--strict", *map(str, built))
    run("check_wheel_contents", "--toplevel", "braidlog,pyspark_braidlog", *map(str, wheels))
    for wheel in wheels:
        if "manylinux" in wheel.name:
            run("abi3audit", "--strict", "--summary", str(wheel))
            shown = run("auditwheel", "show", str(wheel))
            if "manylinux_2_17" not in shown and "manylinux2014" not in shown:
                raise SystemExit(f"{wheel.name} needs a newer glibc:\n{shown}")


def write_bill_of_materials() -> None:
    """Write the SBOM of a plain installation (CycloneDX, JSON)."""
    requirements = str(ROOT / "requirements" / "core.txt")
    run("cyclonedx_py", "requirements", requirements, "--output-file", str(sbom()))


def sbom() -> Path:
    """Return the path of the SBOM, which has the name of the sdist."""
    (sdist,) = DIST.glob("*.tar.gz")
    return DIST / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"


def try_wheel(wheel: Path) -> None:
    """Install a wheel for each Python at hand, and serve a message there."""
    for version, python in pythons():
        with tempfile.TemporaryDirectory() as folder:
            inside = f"{folder}/bin/python"
            call(python, "-m", "venv", folder)
            pip = (inside, "-m", "pip", "install", "--quiet", "--no-input")
            call(*pip, "--disable-pip-version-check", str(wheel))
            # Not in this folder, whose packages would be found first.
            language = call(inside, "-c", TRIAL, cwd=folder)
            shown = call(f"{folder}/bin/braidlog", "--version", cwd=folder)
        print(f"{wheel.name}: Python {version}, {shown}, {language}")


def pythons() -> Iterator[tuple[str, str]]:
    """Yield the version and the path of each supported Python at hand."""
    for version in PYTHONS:
        name = f"python{version}"
        known = (*Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"), shutil.which(name))
        path = next((str(path) for path in known if path and is_usable(path)), None)
        if path is None:
            print(f"Python {version} is not here: not tried")
        else:
            yield version, path


def is_usable(python: str | Path) -> bool:
    """Return True if the interpreter runs; a launcher may lack the version."""
    done = subprocess.run([python, "-c", ""], capture_output=True, check=False)
    return done.returncode == 0


def write_sums() -> None:
    """Write the SHA-256 sums, in the form of sha256sum(1)."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")


def run(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a module of this environment; return the output. Ends the program on a failure."""
    return call(sys.executable, "-m", module, *arguments, cwd=DIST, environment=environment)


def call(
    *command: str, cwd: str | Path = ROOT, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command; return the output. Ends the program on a failure."""
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
