"""What the conditions of a program ask of the path and of the rows, each thing once.

Symbolic: it is known from the program alone, so the driver can compile a program to see whether
it can be run; `arrays.py` puts a bucket's values behind it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from spark_cep.udfs.expressions import DOUBLE, Constant, Type
from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.needs import ANYTHING, Looks, Need
from spark_cep.udfs.rows.program import Classifier, Read
from spark_cep.udfs.values.vectors import WORDS

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Expression
    from spark_cep.udfs.rows.program import Aggregate, RowProgram, Variables

_ANCHORS = {"current": o.CURRENT, "first": o.FIRST, "last": o.LAST}
Column = tuple[int, bool]
# A read so many steps back is as many values to compare two paths by: further back, comparing
# costs more than walking, and what is needed where grows with the square.
FARTHEST_STEP: Final = 32
_T = TypeVar("_T")


@dataclass(frozen=True)
class Source:
    """Values by row: of a shipped column, or of an expression over the row and its neighbours.
    `as_float`: integers are wanted as floats."""

    column: int | None
    type: Type
    expression: Expression | None = None
    as_float: bool = False

    @property
    def is_float(self) -> bool:
        return self.as_float or self.type.kind == "float"


@dataclass(frozen=True)
class Fold:
    """`values`: its place among the folds kept as integers or as floats. `once`: the shipped
    column whose equal values count once; `distinct`: this fold's place among those that have one,
    for each counts for itself what it has seen."""

    kind: int
    which: int
    column: int
    values: int
    once: int = -1
    distinct: int = -1

    @property
    def is_float(self) -> bool:
        return self.kind in (o.SUM_FLOAT, o.LEAST_FLOAT, o.MOST_FLOAT)


@dataclass
class State:
    program: RowProgram
    sets: list[frozenset[int]] = field(default_factory=list)
    ints: list[Source] = field(default_factory=list)
    floats: list[Source] = field(default_factory=list)
    reads: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    distinct: list[int] = field(default_factory=list)
    looks: Looks = field(default_factory=lambda: defaultdict(set))

    @property
    def ansi(self) -> bool:
        return self.program.ansi

    def which(self, variables: Variables) -> int:
        """A set's number; -1 for all rows of the path, which need no list."""
        if variables is None or len(variables) == len(self.program.variables):
            return -1
        return _place(self.sets, variables)

    def column(self, column: int, type_: Type, *, as_float: bool = False) -> Column:
        return self._source(Source(column, type_, as_float=as_float))

    def computed(self, expression: Expression) -> Column:
        return self._source(Source(None, expression.type, expression))

    def read(self, node: Read | Classifier, column: Column | None) -> int:
        which = self.which(node.variables)
        place, is_float = column or (-1, False)
        if column is not None and node.anchor != "current":
            self.looks[node.anchor, which].add((place, is_float, node.shift))
        read = (_ANCHORS[node.anchor], which, node.offset, node.shift, place)
        return _place(self.reads, read)

    def constant(self, node: Constant) -> int | float | Constant:
        """Words have no number before the bucket's are known."""
        if node.type.kind in WORDS:
            return node
        return float(node.value) if node.type.kind == "float" else int(node.value)

    def fold(self, node: Aggregate) -> int:
        everything = frozenset(range(len(self.program.variables)))
        which = _place(self.sets, everything if node.variables is None else node.variables)
        kind, column = self._folded(node)
        counts_once = node.distinct and node.name not in ("min", "max")
        once = node.column if counts_once and node.column is not None else -1
        new = Fold(kind, which, column[0], 0, once)
        for place, fold in enumerate(self.folds):
            if replace(fold, values=0, distinct=-1) == new:
                return place
        values = sum(fold.is_float == new.is_float for fold in self.folds)
        distinct = -1
        if once >= 0:
            distinct = len(self.distinct)
            self.distinct.append(once)
        self.folds.append(replace(new, values=values, distinct=distinct))
        return len(self.folds) - 1

    def needs(self, leaf: Expression) -> Need:
        """What a leaf of a compiled condition needs of the path."""
        if isinstance(leaf, Read | Classifier):
            label = " label" if isinstance(leaf, Classifier) else ""
            if (label and leaf.shift) or (not label and leaf.column is None):  # type: ignore[union-attr]
                return ANYTHING
            if leaf.offset > FARTHEST_STEP:
                return ANYTHING
            return Need(leaf.anchor + label, self.which(leaf.variables), leaf.offset)
        if hasattr(leaf, "column"):
            fold = self.fold(leaf)  # type: ignore[arg-type]
            return ANYTHING if self.folds[fold].distinct >= 0 else Need("fold", fold)
        return Need("number")

    def _folded(self, node: Aggregate) -> tuple[int, Column]:
        if node.column is None:
            return o.COUNTED, (-1, False)
        if node.name == "count":
            return o.COUNTED, self.column(node.column, Type("other"))
        if node.name in ("sum", "avg"):
            if node.type.kind == "float":
                return o.SUM_FLOAT, self.column(node.column, DOUBLE, as_float=True)
            return o.SUM_INT, self.column(node.column, Type("int"))
        is_float = node.type.kind == "float"
        kinds = (o.LEAST_INT, o.LEAST_FLOAT) if node.name == "min" else (o.MOST_INT, o.MOST_FLOAT)
        return kinds[is_float], self.column(node.column, node.type)

    def _source(self, source: Source) -> Column:
        where = self.floats if source.is_float else self.ints
        return _place(where, source), source.is_float


def _place(where: list[_T], value: _T) -> int:
    if value not in where:
        where.append(value)
    return where.index(value)
