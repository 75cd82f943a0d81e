"""The demo runs and finds all records equal."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.spark
def test_the_demo_finds_no_difference():
    command = [sys.executable, "-m", "conformance.demo"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything equal" in done.stdout
