"""Rules for names: a variable says what it holds, and a class name has a single meaning."""

import ast
from collections import defaultdict

from tests.sources import sources

# The field has a noun for each of these: record, batch, topic, partition, member, answer ...
VAGUE = {"one", "ones", "found", "told", "made", "kept", "heir", "some", "given", "taken"}
VAGUE |= {"said", "asked", "there", "what", "who"}

# The only class names that are defined twice, with the reason. Kafka's generated tables are no
# sources here: their names are Kafka's, and each module is a message with its own structures.
ERROR = "an error of the storage, and the broker's error that clients receive for it"
REQUEST = "a request has the name of its protocol's documents, in each protocol"
SHARED = {
    "DamagedLog": ERROR,
    "OffsetOutOfRange": ERROR,
    "RecordTooLarge": ERROR,
    "StorageFailed": ERROR,
    "StorageFull": ERROR,
    "CreateToken": REQUEST,
    "CreateTopic": REQUEST,
    "CreateUser": REQUEST,
    "ProduceRequest": REQUEST,
}


def bound_name(node: ast.AST) -> str:
    """Return the name of the variable or argument that a node binds, else an empty text."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.arg if isinstance(node, ast.arg) else ""


def test_variables_have_the_fields_nouns() -> None:
    offenders = [
        f"{source.path}: {name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if (name := bound_name(node)) in VAGUE
    ]
    assert not offenders, "\n".join(offenders)


def test_functions_of_the_product_have_the_fields_nouns() -> None:
    offenders = [
        f"{source.path}:{node.lineno}: {node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if source.package != "tests"
        and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.strip("_") in VAGUE
    ]
    assert not offenders, "\n".join(offenders)


def test_a_class_name_stands_for_a_single_thing() -> None:
    places = defaultdict(list)
    for source in sources():
        for node in source.classes:
            places[node.name].append(f"{source.path}:{node.lineno}")
    repeated = {name: at for name, at in places.items() if len(at) > 1}
    offenders = [f"{name}: {', '.join(at)}" for name, at in repeated.items() if name not in SHARED]
    assert not offenders, "\n".join(sorted(offenders))
    assert repeated.keys() == SHARED.keys(), "a name of the list is no longer repeated"
