"""The program that builds a release: what it changes in the project's description, and the files
of packaging/. `make dist` runs it whole.
"""

import shutil
import subprocess
import tomllib

import pytest

from scripts import dist
from tests.sources import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text()


def extensions(text):
    return tomllib.loads(text)["tool"]["setuptools"].get("ext-modules", [])


def test_a_release_needs_the_extension_and_the_pure_wheel_has_none():
    (extension,) = extensions(PROJECT)
    assert extension["optional"], "an installation from source works without a compiler"
    (needed,) = extensions(dist.need_extension(PROJECT))
    assert needed == extension | {"optional": False}
    without = dist.leave_extension_out(PROJECT)
    assert extensions(without) == []
    assert tomllib.loads(without)["project"] == tomllib.loads(PROJECT)["project"]


def test_the_extension_keeps_to_the_stable_abi_of_the_oldest_python():
    (extension,) = extensions(PROJECT)
    assert extension["py-limited-api"]
    assert ["Py_LIMITED_API", "0x030B0000"] in extension["define-macros"]
    oldest = tomllib.loads(PROJECT)["project"]["requires-python"]
    assert oldest == f">={dist.PYTHONS[0]}"


def test_the_image_takes_a_wheel_that_a_release_has():
    image = (ROOT / "packaging" / "Dockerfile").read_text()
    assert any(tag in image for tag in dist.PLATFORMS.values())


def test_systemd_understands_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    unit = (ROOT / "packaging" / "braidlog.service").read_text()
    (tmp_path / "braidlog.service").write_text(
        unit.replace("/opt/braidlog/bin/braidlog", "/bin/true")
    )
    verify = ("systemd-analyze", "verify", str(tmp_path / "braidlog.service"))
    shown = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
