"""Rules for names: nouns of the field, a single meaning for a class, and no missing import."""

import ast
from collections import defaultdict
from functools import cache

from tests.sources import Source, sources

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


def test_functions_have_the_fields_nouns() -> None:
    offenders = [
        f"{source.path}:{node.lineno}: {node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
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


def test_programs_import_names_that_exist() -> None:
    """mypy checks the product alone, and a program of the conformance runs seldom."""
    by_module = {source.path.removesuffix(".py").replace("/", "."): source for source in sources()}
    offenders = []
    for source in sources():
        for line, name in source.imports:
            module, _, imported = name.rpartition(".")
            if module in by_module and imported not in names_in(by_module[module]):
                offenders.append(f"{source.path}:{line}: {name}")
    assert not offenders, "\n".join(offenders)


@cache
def names_in(source: Source) -> set[str]:
    """Return the names of a module: defined, imported or bound anywhere."""
    imported = {name.rpartition(".")[2] for _, name in source.imports}
    bound = {bound_name(node) for node in ast.walk(source.tree)}
    aliases = {
        alias.asname
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if alias.asname is not None
    }
    return {name for _, name in source.defined()} | imported | bound | aliases
