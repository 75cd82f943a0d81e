"""Finds classes that inherit from another folder, and assignments to other modules' objects.

Types are found by name: from annotations and constructor calls, in the file itself and in the class
that an attribute belongs to. An expression of an unknown type is no offence.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sources import Function, Source, product

# A class with such a base or decorator holds values, and functions in any module fill it.
VALUES = {"dataclass", "Struct", "NamedTuple"}
ERRORS = {"Exception", "OSError", "ValueError"}


@dataclass(slots=True)
class Defined:
    """A class of the product."""

    source: Source
    node: ast.ClassDef
    bases: list[str]
    attributes: dict[str, str | None]  # The name of the type, if known.

    @property
    def folder(self) -> str:
        return self.source.path.rpartition("/")[0]


def last_name(node: ast.expr | None) -> str | None:
    """Return the last part of the name of a class in an annotation, a base or a call."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(text)):
            return last_name(ast.parse(text, mode="eval").body)
        case ast.Call(func=called):
            return last_name(called)
        case ast.Subscript(value=generic):
            return last_name(generic)
        case ast.BinOp(left=left, op=ast.BitOr()):  # Of `X | None`.
            return last_name(left)
    return None


class Classes:
    """All classes of the product, by name."""

    def __init__(self) -> None:
        found: dict[str, list[Defined]] = {}
        for source in product():
            for node in source.classes:
                bases = [last_name(base) or "" for base in node.bases]
                one = Defined(source, node, bases, dict(attributes_of(node)))
                found.setdefault(node.name, []).append(one)
        self._all = found

    def __iter__(self) -> Iterator[Defined]:
        return (one for some in self._all.values() for one in some)

    def named(self, name: str | None, source: Source) -> Defined | None:
        """Return the class that a name means in a file."""
        for one in self._all.get(name or "", ()):
            if one.source is source or imports(source, one):
                return one
        return None

    def ancestors(self, one: Defined) -> Iterator[Defined]:
        """Yield the classes that a class inherits from, nearest first."""
        for name in one.bases:
            if (base := self.named(name, one.source)) is not None and base is not one:
                yield base
                yield from self.ancestors(base)

    def holds_values(self, one: Defined) -> bool:
        """Return True for a class that holds values, by its decorator or by a base."""
        return any(
            bool(VALUES & {*map(last_name, some.node.decorator_list), *some.bases})
            for some in (one, *self.ancestors(one))
        )

    def has_behaviour(self, one: Defined) -> bool:
        """Return False for an interface, an error, and a class that has only fields."""
        family = (one, *self.ancestors(one))
        names = {name for some in family for name in some.bases}
        if names & ERRORS:
            return False
        return any(map(does_something, family))

    def type_of(self, node: ast.expr, scope: "Scope") -> Defined | None:
        """Return the class of an expression, if known."""
        match node:
            case ast.Name(id="self"):
                return scope.owner
            case ast.Name(id=name):
                known = scope.types.get(name)
                if isinstance(known, ast.Attribute):
                    return self.type_of(known, scope)
                return self.named(known, scope.source)
            case ast.Attribute(value=inner, attr=attribute):
                holder = self.type_of(inner, scope)
                if holder is None:
                    return None
                for one in (holder, *self.ancestors(holder)):
                    if attribute in one.attributes:
                        return self.named(one.attributes[attribute], one.source)
            case ast.Call(func=called):
                return self.named(last_name(called), scope.source)
        return None


def does_something(one: Defined) -> bool:
    """Return True if a class has a method with a body."""
    return "Protocol" not in one.bases and any(
        isinstance(line, Function) and "abstractmethod" not in map(last_name, line.decorator_list)
        for line in one.node.body
    )


def imports(source: Source, one: Defined) -> bool:
    module = "braidlog." + one.source.path.removesuffix(".py").replace("/", ".")
    return any(name == f"{module}.{one.node.name}" for _, name in source.imports)


def attributes_of(node: ast.ClassDef) -> Iterator[tuple[str, str | None]]:
    """Yield the attributes that a class sets, each with the name of its type."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id, last_name(line.annotation)
        elif isinstance(line, Function):
            if "property" in map(last_name, line.decorator_list):
                yield line.name, last_name(line.returns)
            yield from attributes_set_by(line)


def attributes_set_by(function: Function) -> Iterator[tuple[str, str | None]]:
    given = {one.arg: last_name(one.annotation) for one in arguments(function)}
    for target, value, annotation in all_assignments(function):
        if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
            continue
        name = last_name(annotation)
        if name is None and isinstance(value, ast.Name):
            name = given.get(value.id)
        elif name is None and isinstance(value, ast.Call):
            name = last_name(value)
        yield target.attr, name


def arguments(function: Function) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


Assigned = tuple[ast.expr, ast.expr | None, ast.expr | None]


def assignments(node: ast.AST) -> Iterator[Assigned]:
    """Yield (target, value, annotation) of each assignment of a statement."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from pairs(target, value)
        case ast.AnnAssign(target=target, value=value, annotation=annotation):
            yield target, value, annotation
        case ast.AugAssign(target=target, value=value):
            yield target, value, None


def all_assignments(function: Function) -> Iterator[Assigned]:
    for node in ast.walk(function):
        yield from assignments(node)


def pairs(target: ast.expr, value: ast.expr) -> Iterator[Assigned]:
    if not isinstance(target, ast.Tuple):
        yield target, value, None
        return
    values = value.elts if isinstance(value, ast.Tuple) else [None] * len(target.elts)
    yield from ((one, other, None) for one, other in zip(target.elts, values, strict=False))


@dataclass(slots=True)
class Scope:
    """A function with the known types of its names."""

    source: Source
    owner: Defined | None
    types: dict[str, str | ast.Attribute | None]


def scopes(classes: Classes) -> Iterator[tuple[Scope, Function]]:
    owners = {
        id(line): one for one in classes for line in one.node.body if isinstance(line, Function)
    }
    for source in product():
        for function in source.functions:
            yield Scope(source, owners.get(id(function)), types_in(function)), function


def types_in(function: Function) -> dict[str, str | ast.Attribute | None]:
    """Return the names of a function, each with a class name, or an attribute with its type."""
    types: dict[str, str | ast.Attribute | None] = {
        one.arg: last_name(one.annotation) for one in arguments(function)
    }
    for target, value, annotation in all_assignments(function):
        if isinstance(target, ast.Name):
            known = value if isinstance(value, ast.Attribute) else None
            called = last_name(value) if isinstance(value, ast.Call) else None
            types.setdefault(target.id, last_name(annotation) or called or known)
    return types


def foreign_bases() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of classes that inherit behaviour from another folder."""
    classes = Classes()
    for one in classes:
        for name in one.bases:
            base = classes.named(name, one.source)
            if base is None or not classes.has_behaviour(base):
                continue
            if (one.folder + "/").startswith(base.folder + "/"):  # A room may have inner rooms.
                continue
            yield f"{one.source.path} {one.node.name}", base.node.name


def foreign_assignments() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of assignments to an attribute of another module's object."""
    classes = Classes()
    for scope, function in scopes(classes):
        for target, _, _ in all_assignments(function):
            if not isinstance(target, ast.Attribute) or target.attr.startswith("__"):
                continue
            found = classes.type_of(target.value, scope)
            if found is None or found.source is scope.source or classes.holds_values(found):
                continue
            place = f"{scope.source.path}:{target.lineno} {ast.unparse(target)}"
            yield place, f"{found.node.name}.{target.attr}"
