"""The install that `make install` makes: the code in its folders, found by an editable install."""

import subprocess
import sys

# Spark's own search for data sources: pyspark/sql/worker/lookup_data_sources.py.
SEARCH = """
import importlib, pkgutil, sys
for found in pkgutil.iter_modules():
    if found.name.startswith("pyspark_"):
        module = importlib.import_module(found.name)
        if hasattr(module, "DefaultSource"):
            print(found.name, module.DefaultSource.name())
"""


def test_spark_finds_the_source_in_an_editable_install(tmp_path):
    done = subprocess.run(
        [sys.executable, "-I", "-c", SEARCH], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["pyspark_braidlog", "braidlog"], done.stderr
