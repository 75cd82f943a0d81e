"""Brokers over one shared store, for runs: their settings, and the commands on it."""

import os
import subprocess
import sys

from conformance.cluster.servers import BUCKET, KEYS, Postgres, Seaweed


def settings_for(postgres: Postgres, seaweed: Seaweed, prefix: str) -> list[str]:
    """What brokers and commands need to know, for `--set`."""
    return [
        "storage.mode=shared",
        f"shared.database={postgres.database}",
        f"shared.store=s3://{BUCKET}/{prefix}",
        f"shared.endpoint={seaweed.endpoint}",
    ]


def command(settings: list[str], *arguments: str) -> tuple[int, str]:
    """`braidlog cluster ...`: exit code, and what it printed."""
    flags = [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli.main", "cluster", *arguments, *flags],
        env=os.environ | KEYS,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
