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
        by_name: dict[str, list[Defined]] = {}
        for source in product():
            for node in source.classes:
                bases = [last_name(base) or "" for base in node.bases]
                defined = Defined(source, node, bases, dict(attributes_of(node)))
                by_name.setdefault(node.name, []).append(defined)
        self._all = by_name

    def __iter__(self) -> Iterator[Defined]:
        return (defined for same_name in self._all.values() for defined in same_name)

    def named(self, name: str | None, source: Source) -> Defined | None:
        """Return the class that a name means in a file."""
        for defined in self._all.get(name or "", ()):
            if defined.source is source or imports(source, defined):
                return defined
        return None

    def ancestors(self, defined: Defined) -> Iterator[Defined]:
        """Yield the classes that a class inherits from, nearest first."""
        for name in defined.bases:
            if (base := self.named(name, defined.source)) is not None and base is not defined:
                yield base
                yield from self.ancestors(base)

    def holds_values(self, defined: Defined) -> bool:
        """Return True for a class that holds values, by its decorator or by a base."""
        return any(
            bool(VALUES & {*map(last_name, relative.node.decorator_list), *relative.bases})
            for relative in (defined, *self.ancestors(defined))
        )

    def has_behaviour(self, defined: Defined) -> bool:
        """Return False for an interface, an error, and a class that has only fields."""
        family = (defined, *self.ancestors(defined))
        names = {name for relative in family for name in relative.bases}
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
                for relative in (holder, *self.ancestors(holder)):
                    if attribute in relative.attributes:
                        return self.named(relative.attributes[attribute], relative.source)
            case ast.Call(func=called):
                return self.named(last_name(called), scope.source)
        return None


def does_something(defined: Defined) -> bool:
    """Return True if a class has a method with a body."""
    return "Protocol" not in defined.bases and any(
        isinstance(line, Function) and "abstractmethod" not in map(last_name, line.decorator_list)
        for line in defined.node.body
    )


def imports(source: Source, defined: Defined) -> bool:
    module = "braidlog." + defined.source.path.removesuffix(".py").replace("/", ".")
    return any(name == f"{module}.{defined.node.name}" for _, name in source.imports)


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
    annotations = {argument.arg: last_name(argument.annotation) for argument in arguments(function)}
    for target, value, annotation in all_assignments(function):
        if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != "self":
            continue
        name = last_name(annotation)
        if name is None and isinstance(value, ast.Name):
            name = annotations.get(value.id)
        elif name is None and isinstance(value, ast.Call):
            name = last_name(value)
        yield target.attr, name


def arguments(function: Function) -> list[ast.arg]:
    signature = function.args
    return [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]


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
    yield from (
        (target_part, other, None) for target_part, other in zip(target.elts, values, strict=False)
    )


@dataclass(slots=True)
class Scope:
    """A function with the known types of its names."""

    source: Source
    owner: Defined | None
    types: dict[str, str | ast.Attribute | None]


def scopes(classes: Classes) -> Iterator[tuple[Scope, Function]]:
    owners = {
        id(line): class_
        for class_ in classes
        for line in class_.node.body
        if isinstance(line, Function)
    }
    for source in product():
        for function in source.functions:
            yield Scope(source, owners.get(id(function)), types_in(function)), function


def types_in(function: Function) -> dict[str, str | ast.Attribute | None]:
    """Return the names of a function, each with a class name, or an attribute with its type."""
    types: dict[str, str | ast.Attribute | None] = {
        argument.arg: last_name(argument.annotation) for argument in arguments(function)
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
    for class_ in classes:
        for name in class_.bases:
            base = classes.named(name, class_.source)
            if base is None or not classes.has_behaviour(base):
                continue
            if (class_.folder + "/").startswith(base.folder + "/"):  # A room may have inner rooms.
                continue
            yield f"{class_.source.path} {class_.node.name}", base.node.name


def foreign_assignments() -> Iterator[tuple[str, str]]:
    """Yield (place, text) of assignments to an attribute of another module's object."""
    classes = Classes()
    for scope, function in scopes(classes):
        for target, _, _ in all_assignments(function):
            if not isinstance(target, ast.Attribute) or target.attr.startswith("__"):
                continue
            owner = classes.type_of(target.value, scope)
            if owner is None or owner.source is scope.source or classes.holds_values(owner):
                continue
            place = f"{scope.source.path}:{target.lineno} {ast.unparse(target)}"
            yield place, f"{owner.node.name}.{target.attr}"
