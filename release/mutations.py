"""All places of the package that one mutation can change, and what it makes of them.

A mutation replaces one expression or statement. Messages, annotations, decorators and imports stay
as they are. The new text has as many lines as the old one, so that the code below keeps its lines.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Change = tuple[str, Any, Any]
"""Name of the operator, the node, and the node or text that replaces it."""


class Mutation(NamedTuple):
    """``file[start:end]`` (offsets in bytes) becomes ``after``.

    file: relative to the repository
    first_line, last_line: the simple statement, or the expression in the head of another one
    name: of the innermost function, class or variable that the change belongs to
    is_of_import: outside of functions, so the import executes it
    """

    file: str
    start: int
    end: int
    after: str
    before: str
    operator: str
    first_line: int
    last_line: int
    name: str
    is_of_import: bool

    def key(self, source: bytes) -> str:
        """Return a text that is the same for the same change of the same module."""
        parts = f"{self.file} {self.start} {self.end} {self.after}\0".encode()
        return hashlib.sha256(parts + source).hexdigest()[:16]

    def lines(self) -> list[tuple[str, int]]:
        """Return file and number of each line."""
        return [(self.file, line) for line in range(self.first_line, self.last_line + 1)]

    def __str__(self) -> str:
        before, after = (" ".join(part.split())[:70] for part in (self.before, self.after))
        return f"{self.file}:{self.first_line}: {before} -> {after}"


_COMPARISONS: dict[type, type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq},
    **{ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn},
    **{ast.NotIn: ast.In},
}
_ARITHMETIC: dict[type, type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult},
    **{ast.Div: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr},
}
_SILENT_CALLS = ("warn", "warning", "info", "debug", "error", "log")
# These return a value of the kind of their argument, or of the object whose method they are.
_KEEPING_CALLS = (
    *(
        "min",
        "max",
        "abs",
        "round",
        "int",
        "str",
        "bytes",
        "list",
        "set",
        "tuple",
        "dict",
        "sorted",
    ),
    *("reversed", "frozenset", "next", "quote", "unquote", "replace", "lower", "upper", "casefold"),
    *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "copy", "cast", "fill_null"),
    *("decode", "encode"),
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LITERALS = (ast.Tuple, ast.List, ast.Set)
_TRUE, _FALSE = ast.Constant(True), ast.Constant(False)


class _Place(NamedTuple):
    """A node, and the nodes around it from the module on."""

    node: Any
    parents: tuple[Any, ...]

    @property
    def parent(self) -> Any:
        return self.parents[-1] if self.parents else None

    def is_in_function(self) -> bool:
        """Whether a call executes the node: not so the defaults of an outermost function."""
        chain = [*self.parents, self.node]
        depth = next((n for n, node in enumerate(chain[:-1]) if isinstance(node, _FUNCTIONS)), None)
        return depth is not None and chain[depth + 1] in chain[depth].body

    def name(self) -> str:
        for node in reversed([*self.parents, self.node]):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                return node.name
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            target = node.target if isinstance(node, ast.AnnAssign) else target
            if isinstance(target, ast.Name) and not self.is_in_function():
                return target.id
        return ""

    def lines(self, node: Any) -> tuple[int, int]:
        chain = reversed([*self.parents, self.node])
        statement = next(one for one in chain if isinstance(one, ast.stmt))
        chosen = node if hasattr(statement, "body") else statement
        return chosen.lineno, chosen.end_lineno


def _places(node: Any, are_all: bool = False, parents: tuple[Any, ...] = ()) -> Iterator[_Place]:
    """Yield the places that a mutation may change, or all."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert)) and not are_all:
        return
    yield _Place(node, parents)
    if isinstance(node, ast.Raise) and not are_all:
        return  # its message
    for name, value in ast.iter_fields(node):
        is_type = name in ("annotation", "returns", "bases", "decorator_list")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and (are_all or not is_type):
                yield from _places(child, are_all, (*parents, node))


def _without_one(values: list[Any]) -> Iterator[list[Any]]:
    return (values[:number] + values[number + 1 :] for number in range(len(values)))


def _of_expression(place: _Place) -> Iterator[Change]:
    node = place.node
    if isinstance(node, ast.Compare):
        if len(node.ops) > 1:
            first, *rest = node.comparators
            yield "comparison", node, ast.Compare(node.left, node.ops[:-1], node.comparators[:-1])
            yield "comparison", node, ast.Compare(first, node.ops[1:], rest)
        else:
            other = _COMPARISONS[type(node.ops[0])]()
            yield "comparison", node, ast.Compare(node.left, [other], node.comparators)
    elif isinstance(node, ast.BoolOp):
        for rest in _without_one(node.values):
            yield "operand", node, ast.BoolOp(node.op, rest) if len(rest) > 1 else rest[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node, node.operand
    elif isinstance(node, ast.BinOp):
        if type(node.op) in _ARITHMETIC:
            other = _ARITHMETIC[type(node.op)]()
            yield "arithmetic", node, ast.BinOp(node.left, other, node.right)
        yield from (("arithmetic", node, side) for side in (node.left, node.right))
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        is_bool = isinstance(node.value, bool)
        yield "constant", node, ast.Constant(not node.value if is_bool else node.value + 1)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        if isinstance(node.ctx, ast.Load):
            yield "slice", node, node.value
    elif isinstance(node, ast.Call) and not isinstance(place.parent, ast.Expr):
        if isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING_CALLS:
            yield "call", node, node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id in _KEEPING_CALLS:
            arguments = [one for one in node.args if not isinstance(one, ast.Starred)]
            yield from (("call", node, one) for one in arguments)


def _of_elements(place: _Place) -> Iterator[Change]:
    """Drop an element. Each test would notice that of a tuple which is unpacked at once."""
    node, parent = place.node, place.parent
    if isinstance(node, ast.Dict):
        for pairs in _without_one([*zip(node.keys, node.values)]):
            keys, values = zip(*pairs) if pairs else ((), ())
            yield "element", node, ast.Dict([*keys], [*values])
    is_unpacked = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple)
    is_type = isinstance(parent, ast.Subscript) and not place.is_in_function()
    is_returned = isinstance(parent, (ast.Return, ast.Yield))
    if not isinstance(node, _LITERALS) or is_unpacked or is_type or is_returned:
        return
    if isinstance(node, ast.Set):
        for rest in _without_one(node.elts):
            yield "element", node, ast.Set(rest) if rest else "set()"
    elif isinstance(node.ctx, ast.Load):
        yield from (("element", node, type(node)(one, node.ctx)) for one in _without_one(node.elts))


def _of_condition(place: _Place) -> Iterator[Change]:
    node = place.node
    tests = [node.test] if isinstance(node, (ast.If, ast.IfExp)) else []
    if isinstance(node, ast.comprehension):
        tests = node.ifs
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if isinstance(node, (ast.Compare, ast.BoolOp)) or is_not:
        is_part = isinstance(place.parent, (ast.BoolOp, ast.UnaryOp, ast.While))
        tests = [] if is_part else [node]
    for test in tests:
        yield from (("condition", test, value) for value in (_TRUE, _FALSE))
    if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
        yield "condition", node.test, _TRUE
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield "handler", node.type, "()"


def _of_statement(place: _Place) -> Iterator[Change]:
    node = place.node
    if isinstance(node, (ast.Break, ast.Continue)):
        yield "loop", node, "continue" if isinstance(node, ast.Break) else "break"
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield "return", node, "return None"
        if not isinstance(place.parent, _FUNCTIONS):
            yield "early return", node, "pass"
    elif isinstance(node, ast.Raise):
        yield "raise", node, "pass"
    elif isinstance(node, (ast.AugAssign, ast.Delete)):
        yield "state", node, "pass"
    elif isinstance(node, ast.Assign):
        if len(node.targets) > 1:
            for rest in _without_one(node.targets):
                yield "state", node, f"{' = '.join(map(ast.unparse, [*rest, node.value]))}"
        elif _is_forgettable(place):
            yield "state", node, "pass"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        if not (isinstance(function, ast.Attribute) and function.attr in _SILENT_CALLS):
            yield "statement", node, "pass"


def _is_forgettable(place: _Place) -> bool:
    """Whether the code below can run without the assignment: its target has a value before."""
    (target,) = place.node.targets
    if not isinstance(target, ast.Name):
        return isinstance(target, (ast.Attribute, ast.Subscript))
    function = next((one for one in place.parents if isinstance(one, _FUNCTIONS)), None)
    return function is not None and any(
        (isinstance(one, ast.arg) and one.arg == target.id)
        or (isinstance(one, ast.Name) and one.id == target.id and one.lineno < target.lineno)
        for one in ast.walk(function)
    )


def mutations_of(root: Path, file: str) -> list[Mutation]:
    """Return all changes of one module, in the order of the source."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[int, int, str], Mutation] = {}
    for place in _places(ast.parse(source)):
        for of_kind in (_of_expression, _of_elements, _of_condition, _of_statement):
            for operator, node, other in of_kind(place):
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                before = source[start:end].decode()
                lines = "\n" * before.count("\n")
                is_text = isinstance(other, str)
                after = f"{other}{lines}" if is_text else f"({ast.unparse(other)}{lines})"
                if after.strip("()") != before:
                    change = (file, start, end, after, before, operator, *place.lines(node))
                    mutation = Mutation(*change, place.name(), not place.is_in_function())
                    found.setdefault((start, end, after), mutation)
    return [*found.values()]


class Names:
    """Where functions use a name, and what imports make with it."""

    def __init__(self, root: Path, files: list[str]) -> None:
        self._lines: dict[str, set[tuple[str, int]]] = {}
        self._made_with: dict[str, set[str]] = {}
        for file in files:
            for place in _places(ast.parse((root / file).read_bytes()), are_all=True):
                node = place.node
                name = getattr(node, "id", None) or getattr(node, "attr", None)
                if name and place.is_in_function():
                    self._lines.setdefault(name, set()).add((file, node.lineno))
                elif name:
                    self._made_with.setdefault(name, set()).add(place.name())

    def lines_that_use(self, name: str) -> set[tuple[str, int]]:
        """Return (file, line) of functions that use ``name``, or what an import makes with it."""
        pending, seen = [name], {""}
        while pending:
            one = pending.pop()
            if one not in seen:
                seen.add(one)
                pending += self._made_with.get(one, ())
        return set().union(*(self._lines.get(one, set()) for one in seen))
