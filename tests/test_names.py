"""Rules for names: a variable says what it holds, and a class name has a single meaning."""

import ast
from collections import defaultdict

from tests.sources import product

# The field has a noun for each of these: record, batch, topic, partition, member, answer ...
VAGUE = {"one", "ones", "found", "told", "made", "kept", "heir", "some", "given", "taken"}
VAGUE |= {"said", "asked", "there", "what", "who"}

# Errors of the storage that the broker passes on as its own, and names of protocol documents.
SHARED = {"DamagedLog", "OffsetOutOfRange", "RecordTooLarge", "StorageFailed", "StorageFull"}
SHARED |= {"CreateToken", "CreateTopic", "CreateUser", "Positions", "ProduceRequest"}
# Two meanings until one of them has a name of its own.
SHARED |= {"PartitionReader", "ShowOptions", "Working"}


def bound_name(node: ast.AST) -> str:
    """Return the name of the variable or argument that a node binds, else an empty text."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else ""


def test_variables_have_the_fields_nouns() -> None:
    offenders = [
        f"{source.path}: {name}"
        for source in product()
        for node in ast.walk(source.tree)
        if (name := bound_name(node)) in VAGUE
    ]
    assert not offenders, "\n".join(offenders)


def test_a_class_name_stands_for_a_single_thing() -> None:
    homes = defaultdict(set)
    for source in product():
        for node in source.classes:
            homes[node.name].add(source.path)
    offenders = [
        f"{name}: {', '.join(sorted(paths))}"
        for name, paths in sorted(homes.items())
        if len(paths) > 1 and name not in SHARED
    ]
    assert not offenders, "\n".join(offenders)
