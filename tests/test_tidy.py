"""The project's rules for imports, sizes, names and errors.

Each test lists every offender with its place. The tests read files only, and import only the
adapters' error tables.
"""

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest

from braidlog.broker.errors import BrokerError
from tests.sources import KAFKA_TABLES, PRODUCT, ROOT, Function, Source, product, sources

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
NESTING_MAX = 4
# Of C: code that does not gain twice the speed stays in Python. The checksums are published
# algorithms.
EXTENSION_LINES_MAX = {"speedups.c": 1500, "checksums.h": 320}
CONSTRUCTOR_ARGUMENTS_MAX = 7

# A name covers itself and everything inside.
STORAGE_FOR_ADAPTERS = (
    "braidlog.storage.formats",
    "braidlog.storage.errors",
    "braidlog.storage.metadata.names",
)
# Pulsar's entry ids are a function of its stored entries: `entries.py` alone makes the ids, and
# the two others make and open entries for delivery.
NAMES_A_CODEC = {
    "broker/reading/entries.py",
    "broker/delivery/entry_reads.py",
}
NO_IO = {"trio", "socket", "asyncio", "anyio"}
PURE_FILES = {"framing.py", "reader.py", "machine.py", "messages.py"}
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)


def inside(name: str, *homes: str) -> bool:
    return any(name == home or name.startswith(home + ".") for home in homes)


def body_lines(function: Function) -> int:
    """Return the number of lines from `def` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def nesting(node: ast.AST) -> int:
    """Return the depth of nested blocks; `elif` is as deep as its `if`, an inner function starts at
    0.
    """
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        deepest = max(deepest, nesting(child) + int(isinstance(child, BLOCKS) and not is_elif))
    return deepest


# Imports.


def test_imports_point_down() -> None:
    packages = ("storage", "broker", "protocols")
    above = {
        package: (*(f"braidlog.{name}" for name in packages[level + 1 :]), "tests", "conformance")
        for level, package in enumerate(packages)
    }
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        for line, name in source.imports
        if inside(name, *above[source.package])
    ]
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize("package", PRODUCT)
def test_each_module_has_one_name(package: str) -> None:
    """Only the links in `braidlog/` lead to the folders."""
    link = ROOT / "braidlog" / package
    assert link.is_symlink()
    assert link.resolve() == ROOT / package
    sys.modules.pop(package, None)
    with pytest.raises(ImportError, match=rf"imported as braidlog\.{package}"):
        importlib.import_module(package)
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        for line, name in source.imports
        if inside(name, package)
    ]
    assert not offenders, "\n".join(offenders)


def test_listeners_reach_into_storage_only_for_codecs_and_names() -> None:
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        if source.package == "protocols"
        for line, name in source.imports
        if inside(name, "braidlog.storage") and not inside(name, *STORAGE_FOR_ADAPTERS)
    ]
    assert not offenders, "\n".join(offenders)


def test_adapters_never_import_each_other() -> None:
    offenders = []
    for source in product():
        parts = source.path.split("/")
        if parts[0] != "protocols" or len(parts) < 3:
            continue
        others = [f"braidlog.protocols.{name}" for name in adapters() if name != parts[1]]
        offenders += [
            f"{source.path}:{line} imports {name}"
            for line, name in source.imports
            if inside(name, *others)
        ]
    assert not offenders, "\n".join(offenders)


def test_storage_and_pure_adapter_parts_import_no_event_loop_or_socket() -> None:
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        if source.package == "storage" or is_pure(source)
        for line, name in source.imports
        if name.split(".")[0] in NO_IO
    ]
    assert not offenders, "\n".join(offenders)


def is_pure(source: Source) -> bool:
    return source.package == "protocols" and source.path.rsplit("/", 1)[1] in PURE_FILES


def test_broker_names_no_concrete_adapter_or_codec() -> None:
    concrete = [
        f"braidlog.storage.formats.{name}" for name in ("plain", "kafka", "pulsar", "iggy", "pb")
    ]
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        if source.package == "broker" and source.path not in NAMES_A_CODEC
        for line, name in source.imports
        if inside(name, *concrete)
    ]
    assert not offenders, "\n".join(offenders)


# Errors about a client's own body: codecs raise them for adapters.
ERRORS_OF_BODIES = {
    "BodyError",
    "CorruptBody",
    "RecordTooLarge",
    "TimeOutOfRange",
    "TooManyRecords",
    "UnreadableBody",
}


def test_adapters_translate_no_error_of_storage() -> None:
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        if source.package == "protocols"
        for line, name in source.imports
        if inside(name, "braidlog.storage.errors") and name.split(".")[-1] not in ERRORS_OF_BODIES
    ]
    assert not offenders, "\n".join(offenders)


def test_adapters_use_no_catalogue_and_no_partition_log() -> None:
    offenders = [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for source in product()
        if source.package == "protocols"
        for node in source.attributes
        if reaches_too_far(node)
    ]
    assert not offenders, "\n".join(offenders)


def reaches_too_far(node: ast.Attribute) -> bool:
    """Return True for `X.catalogue`, and for `X.log` unless X is a connection or
    the configuration.
    """
    if node.attr == "catalogue":
        return True
    if node.attr != "log":
        return False
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else ast.unparse(node.value)
    return owner.lstrip("_") not in ("connection", "config")


def test_pure_adapter_parts_do_not_import_the_broker() -> None:
    """Allowed: the end of a connection, in a module that imports nothing itself."""
    offenders = [
        f"{source.path}:{line} imports {name}"
        for source in product()
        if is_pure(source)
        for line, name in source.imports
        if inside(name, "braidlog.broker") and not inside(name, "braidlog.broker.runtime.endings")
    ]
    endings = next(source for source in product() if source.path == "broker/runtime/endings.py")
    assert not endings.imports
    assert not offenders, "\n".join(offenders)


def test_worker_threads_are_used_through_the_wrapper_in_broker_threads() -> None:
    """A waiter of `trio.to_thread.run_sync` that raises would stay in memory (`broker.threads`)."""
    offenders = [
        f"{source.path}:{call.lineno}"
        for source in product()
        if source.path != "broker/runtime/threads.py"
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("to_thread.run_sync")
    ]
    assert not offenders, "\n".join(offenders)


def test_imports_have_no_circles() -> None:
    """Imports for types count too: shared code of two modules goes into a third module."""
    needs = needs_of({name: name for name in modules()}, with_types=True)
    offenders = [" - ".join(sorted(circle)) for circle in circles(needs)]
    assert not offenders, "\n".join(offenders)


def test_folders_have_no_circles() -> None:
    """Imports for types do not count: a class that gets an object of another folder names the
    object's type, and needs nothing of that folder to run.
    """
    needs = needs_of({name: room(source.path) for name, source in modules().items()})
    offenders = [
        f"{name} - {other}"
        for circle in circles(needs)
        for name in sorted(circle)
        for other in sorted(needs[name] & circle)
    ]
    assert not offenders, "\n".join(offenders)


def room(path: str) -> str:
    """Return the folder of a file: the second one of its path, or the third one of HTTP. A file
    beside such folders is a room of its own.
    """
    parts = path.removesuffix("/__init__.py").split("/")
    return "/".join(parts[: 3 if path.startswith("protocols/http/") else 2])


@cache
def modules() -> dict[str, Source]:
    return {module_name(source): source for source in product()}


def needs_of(homes: Mapping[str, str], *, with_types: bool = False) -> dict[str, set[str]]:
    """Return the rooms that each room imports; `homes` has the room of each module."""
    needs: dict[str, set[str]] = {name: set() for name in homes.values()}
    for name, source in modules().items():
        for line, module in source.imports:
            target = home(module, modules())
            if target is not None and (with_types or line not in source.lines_for_types):
                needs[homes[name]].add(homes[target])
    return {name: targets - {name} for name, targets in needs.items()}


def circles(needs: Mapping[str, set[str]]) -> list[set[str]]:
    """Return sets of names that reach each other."""
    reached = {name: reach(name, needs) for name in needs}
    circles: list[set[str]] = []
    for name, targets in reached.items():
        circle = {other for other in targets if name in reached[other]}
        if circle and circle not in circles:
            circles.append(circle)
    return circles


def module_name(source: Source) -> str:
    name = source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"braidlog.{name}"


def home(module: str, modules: Mapping[str, Source]) -> str | None:
    """Return the project's module that an import leads to."""
    return next((name for name in (module, module.rpartition(".")[0]) if name in modules), None)


def reach(name: str, needs: Mapping[str, set[str]]) -> set[str]:
    """Return every name that this name needs, directly or not; itself only within a circle."""
    seen: set[str] = set()
    waiting = list(needs[name])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting.extend(needs[other])
    return seen


WAITS = ast.Await | ast.AsyncFor | ast.AsyncWith


def test_a_handler_that_does_not_wait_is_a_plain_function() -> None:
    """HTTP handlers are exempt: their server awaits all of them."""
    offenders = [
        f"{source.path}:{function.lineno} {function.name}"
        for source in product()
        if source.package == "protocols" and not source.path.startswith("protocols/http/")
        for function in source.tree.body
        if isinstance(function, ast.AsyncFunctionDef) and not function.name.startswith("_")
        if not any(
            isinstance(node, WAITS) or getattr(node, "is_async", 0) for node in ast.walk(function)
        )
    ]
    assert not offenders, "\n".join(offenders)


# Sizes.


def test_files_are_short() -> None:
    offenders = [
        f"{source.path}: {lines} lines"
        for source in sources()
        if (lines := len(source.text.splitlines())) > FILE_LINES_MAX
    ]
    assert not offenders, "\n".join(offenders)


def test_the_extension_in_c_is_short() -> None:
    for name, lines_max in EXTENSION_LINES_MAX.items():
        lines = len((ROOT / "storage/formats" / name).read_text().splitlines())
        assert lines <= lines_max, name


def over(measure: Callable[[Function], int], limit: int, which: str = "") -> list[str]:
    return [
        f"{source.path}:{function.lineno} {function.name}: {size}"
        for source in sources()
        for function in source.functions
        if which in ("", function.name) and (size := measure(function)) > limit
    ]


def test_functions_are_short() -> None:
    offenders = over(body_lines, FUNCTION_LINES_MAX)
    assert not offenders, "\n".join(offenders)


def test_blocks_are_not_nested_deeply() -> None:
    offenders = over(nesting, NESTING_MAX)
    assert not offenders, "\n".join(offenders)


def test_constructors_take_few_arguments() -> None:
    def arguments(function: Function) -> int:
        signature = function.args
        return len(signature.posonlyargs) + len(signature.args) + len(signature.kwonlyargs) - 1

    offenders = over(arguments, CONSTRUCTOR_ARGUMENTS_MAX, which="__init__")
    assert not offenders, "\n".join(offenders)


# Words.


def test_every_function_of_the_product_is_annotated() -> None:
    offenders = [
        f"{source.path}:{function.lineno} {function.name}: {', '.join(missing)}"
        for source in sources()
        if source.package in (*PRODUCT, "scripts")
        for function in source.functions
        if (missing := list(not_annotated(function)))
    ]
    assert not offenders, "\n".join(offenders)


def not_annotated(function: Function) -> Iterator[str]:
    names = function.args
    everything = [*names.posonlyargs, *names.args, *names.kwonlyargs, names.vararg, names.kwarg]
    for argument in everything:
        if argument and argument.annotation is None and argument.arg not in ("self", "cls"):
            yield argument.arg
    if function.returns is None:
        yield "return"


def test_every_module_has_a_docstring() -> None:
    offenders = [
        source.path
        for source in sources()
        if source.package != "tests"  # A test's name is its docstring.
        if source.text.strip() and ast.get_docstring(source.tree) is None
    ]
    assert not offenders, "\n".join(offenders)


def test_no_module_is_a_collection_of_helpers() -> None:
    offenders = [
        source.path for source in sources() if source.path.endswith(("utils.py", "helpers.py"))
    ]
    offenders += [
        f"{source.path}:{node.lineno} {node.name}"
        for source in sources()
        for node in source.classes
        if node.name.endswith("Manager")
    ]
    assert not offenders, "\n".join(offenders)


# A count for tests only; a limit that follows from others.
USED_BY_OTHERS = {"open_count", "LOOKED_AT_MAX"}
COMMAND_LINE = "broker/cli/"  # Decorators name the functions of the command line.


def test_every_definition_is_used_by_the_product() -> None:
    """Methods that a library calls are exempt: those of classes with a base outside the project."""
    used = {*USED_BY_OTHERS, *called_by_libraries()}.union(*(source.used for source in product()))
    for path in ("pyproject.toml", "storage/formats/speedups.c"):
        used.update(re.findall(r"\w+", (ROOT / path).read_text()))
    for table in KAFKA_TABLES.glob("*.py"):
        used.update(re.findall(r"\w+", table.read_text()))
    offenders = [
        f"{source.path}:{line} {name}"
        for source in product()
        if not source.path.startswith(COMMAND_LINE)
        for line, name in source.defined()
        if name not in used and not name.startswith("__")
    ]
    assert not offenders, "\n".join(offenders)


def called_by_libraries() -> Iterator[str]:
    classes = [node for source in product() for node in source.classes]
    bases = {node.name: [ast.unparse(base) for base in node.bases] for node in classes}
    for node in classes:
        if any(base not in bases and base not in NO_LIBRARY for base in bases_of(node.name, bases)):
            yield from (method.name for method in node.body if isinstance(method, Function))


NO_LIBRARY = {
    *("abc.ABC", "enum.Enum", "enum.IntEnum", "StrEnum", "Generic", "NamedTuple", "Protocol"),
    *("Exception", "OSError", "ValueError", "errors.NotAuthorized", "msgspec.Struct"),
}


def bases_of(name: str, bases: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the bases of a class, and their bases."""
    for base in bases.get(name, ()):
        yield base.split("[")[0]
        yield from bases_of(base, bases)


# Errors.


def adapters() -> list[str]:
    """Return the names of the protocol folders."""
    return sorted(path.parent.name for path in (ROOT / "protocols").glob("*/adapter.py"))


def subclasses(of: type[BrokerError]) -> set[type[BrokerError]]:
    direct = set(of.__subclasses__())
    return direct.union(*(subclasses(subclass) for subclass in direct))


@pytest.mark.parametrize("adapter", adapters())
def test_every_broker_error_has_a_wire_code(adapter: str) -> None:
    table = importlib.import_module(f"braidlog.protocols.{adapter}.errors").WIRE_CODES
    own = {
        error for error in subclasses(BrokerError) if error.__module__ == "braidlog.broker.errors"
    }
    missing = sorted(error.__name__ for error in own - set(table))
    assert not missing, f"protocols/{adapter}/errors.py maps nothing for {', '.join(missing)}"
