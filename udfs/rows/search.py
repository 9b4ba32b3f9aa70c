"""Conditions that the kernel cannot compute, tested one row at a time by the engine's evaluator.

Exact for every type and function that the driver lets through, and thousands of times slower
than the kernel: for decimals beyond 64 bits, user functions, aggregates whose argument names
CLASSIFIER().
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.errors import CepError, LimitError
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead
from spark_cep.udfs.rows import arrays, loading
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.instructions import MATCH
from spark_cep.udfs.rows.leaves import replace_with_cells
from spark_cep.udfs.rows.records import BEGIN, LABELS, NO, NOT_YET, NUMBER, PC, ROW, YES
from spark_cep.udfs.values.evaluate import condition_holds, evaluate_expression, fold_list
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression
    from spark_cep.udfs.rows.compiled import KernelProgram
    from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# --------------------------------------------------------------------------------------------------
# Limits that the matcher can reach: what was too much, where, and the way out.
# --------------------------------------------------------------------------------------------------


def step_limit_error(table: RowTable, begin: int, allowed: int, reached: int) -> LimitError:
    """`begin`: where the search began."""
    where, row = _search_place(table, begin)
    return LimitError(
        f"{where} took more than {allowed:,} steps of the matcher; it was trying row {row + 1:,}",
        hint="conditions on LAST, FIRST or aggregates inside nested repetitions are what "
        "usually gets here: bound the repetitions, add WITHIN or a partition key, or raise it: "
        f"limits=cep.Limits(backtracking_steps={allowed * 10}), or in SQL behind the clause "
        f"/*+ backtracking_steps({allowed * 10}) */",
        details={
            "key": table.key_of(begin), "row": row, "limit": "backtracking_steps",
            "allowed": allowed, "reached": reached,
        },
    )  # fmt: skip


def stack_limit_error(table: RowTable, begin: int, allowed: int) -> LimitError:
    where, row = _search_place(table, begin)
    return LimitError(
        f"{where}: more than {allowed:,} ways wait to be tried for the match that would begin at "
        f"row {row + 1:,}",
        hint="bound the repetitions in the pattern, or add WITHIN or a partition key",
        details={
            "key": table.key_of(begin), "row": row, "limit": "ways",
            "allowed": allowed, "reached": allowed,
        },
    )  # fmt: skip


def bucket_size_error(reached: int, allowed: int) -> LimitError:
    return LimitError(
        f"a bucket of {reached:,} rows is too large for the matcher",
        hint="partition by more columns, or deal the keys to more buckets",
        details={"limit": "bucket_rows", "allowed": allowed, "reached": reached},
    )


def _search_place(table: RowTable, begin: int) -> tuple[str, int]:
    key = table.key_of(begin)
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    return where, int(table.places(np.array([begin]))[0])


# --------------------------------------------------------------------------------------------------
# What AFTER MATCH SKIP can do wrong, which only the rows tell.
# --------------------------------------------------------------------------------------------------


def missing_skip_row_error(table: RowTable, begin: int) -> CepError:
    """`begin`: the position at which the match begins."""
    where, what, row = _skip_place(table, begin)
    return CepError(
        f"{where}: {what} has nowhere to go: the match that begins at row {row + 1} has no row of "
        "that variable",
        hint="skip to a variable that every match fills, or use SKIP PAST LAST ROW",
        details={"key": table.key_of(begin), "row": row},
    )


def endless_skip_error(table: RowTable, begin: int) -> CepError:
    where, what, row = _skip_place(table, begin)
    return CepError(
        f"{where}: {what} would go to the first row of the match that begins at row {row + 1}, "
        "and find the same match for ever",
        hint="skip to a variable that comes later in the match, or use SKIP TO NEXT ROW",
        details={"key": table.key_of(begin), "row": row},
    )


def _skip_place(table: RowTable, begin: int) -> tuple[str, str, int]:
    key, program = table.key_of(begin), table.program
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    names = sorted(program.variables[v].name for v in program.skip.variables)
    what = f"AFTER MATCH SKIP TO {program.skip.kind.upper()} {' or '.join(names)}"
    return where, what, int(table.places(np.array([begin]))[0])


@dataclass(frozen=True)
class _SearchPath:
    """The rows of a search so far, the one under test included, and what they are bound to."""

    begin: int
    row: int
    labels: Array
    number: int

    def rows(self, variables: frozenset[int] | None) -> Array:
        rows = np.arange(self.begin, self.row + 1)
        return rows if variables is None else rows[np.isin(self.labels, list(variables))]


class PythonEvaluator:
    def __init__(
        self, made: KernelProgram, table: RowTable, tally: ErrorTally, ends: PartitionEnds
    ) -> None:
        self._made = made
        self._table = table
        self._tally = tally
        self._is_open = ends.open_rows(table)
        self._looked_behind = False

    def answer(self, state: Array, labels: Array) -> int:
        """Whether the condition that the kernel stopped at holds, or whether the match that it
        found can be shown: YES, NO, or NOT_YET where it hangs on rows behind an open end."""
        if self._made.code.op[state[PC]] == MATCH:
            return self._can_be_shown(state, labels)
        self._looked_behind = False
        holds_ = self._condition(state, labels)
        if self._looked_behind:
            return NOT_YET
        return YES if holds_ else NO

    def _can_be_shown(self, state: Array, labels: Array) -> int:
        """The last row that shows the match looks furthest ahead: what a running measure starts
        from only moves on from row to row."""
        begin, behind, base = int(state[BEGIN]), int(state[ROW]), int(state[LABELS])
        bound = labels[base : base + behind - begin]
        program = self._made.program
        shown = np.flatnonzero(bound & 1 == 0) if program.rows != "one" else range(len(bound))
        if not len(shown):
            return YES
        row = begin + int(shown[-1])
        end = int(self._table.end_of[begin])
        path = _SearchPath(begin, row, bound[: row + 1 - begin] >> 1, 0)
        whole = _SearchPath(begin, behind - 1, bound >> 1, 0)
        for measure in program.measures:
            if isinstance(measure, RowRead) and measure.shift > 0:
                start = _start_row(measure, whole if measure.final else path)
                if start is not None and start + measure.shift >= end:
                    return NOT_YET
        return YES

    def _condition(self, state: Array, labels: Array) -> bool:
        begin, row, base = int(state[BEGIN]), int(state[ROW]), int(state[LABELS])
        of_path = labels[base : base + row + 1 - begin] >> 1
        path = _SearchPath(begin, row, of_path, int(state[NUMBER]) + 1)
        variable = int(self._made.code.label[state[PC]]) >> 1
        condition = self._made.conditions[variable].path
        assert condition is not None
        read: list[Expression] = []
        expression = replace_with_cells(condition, read)
        found = condition_holds(
            expression,
            lambda cell: self._read(read[cell.variable], path),
            self._table.columns,
            self._tally,
        )
        return bool(np.all(found))

    def _read(self, leaf: Expression, path: _SearchPath) -> Vector:
        if isinstance(leaf, MatchNumber):
            return _single_value(path.number)
        if isinstance(leaf, Aggregate):
            return self._aggregate(leaf, path)
        assert isinstance(leaf, RowRead | Classifier)
        row = self._row(leaf, path)
        if isinstance(leaf, Classifier):
            inside = row is not None and path.begin <= row <= path.row
            return (
                _single_value(int(path.labels[row - path.begin]))
                if inside and row is not None
                else _NULL_VALUE
            )
        if row is None:
            return self._null(leaf)
        if leaf.column is None:
            return _single_value(True)
        return self._table.columns.gather(leaf.column, leaf.type, np.array([row]))

    def _null(self, leaf: RowRead) -> Vector:
        if leaf.column is None or not self._table.size:
            return _NULL_VALUE
        like = self._table.columns.gather(leaf.column, leaf.type, np.array([0]))
        return Vector(like.values, np.zeros(1, np.bool_))

    def _row(self, leaf: RowRead | Classifier, path: _SearchPath) -> int | None:
        found = _start_row(leaf, path)
        if found is None:
            return None
        at = found + leaf.shift
        low, high = self._table.begin_of[path.row], self._table.end_of[path.row]
        if at >= high and isinstance(leaf, RowRead):
            self._look_behind(path)
        return int(at) if low <= at < high else None

    def _look_behind(self, path: _SearchPath) -> None:
        """At the rows behind the partition's last."""
        self._looked_behind |= bool(self._is_open[path.row])

    def _aggregate(self, leaf: Aggregate, path: _SearchPath) -> Vector:
        rows = path.rows(leaf.variables)
        if leaf.argument is not None:
            values = self._argument(leaf.argument, rows, path)
        elif leaf.column is None:
            return _single_value(len(rows))
        else:
            values = self._table.columns.gather(leaf.column, leaf.type, rows)
        if leaf.distinct:
            values = _distinct_values(values)
        elements = Vector(
            values.values[np.newaxis], None if values.valid is None else values.valid[np.newaxis]
        )
        return fold_list(elements, leaf.name, leaf.type, self._tally)  # type: ignore[arg-type]

    def _argument(self, argument: Expression, rows: Array, path: _SearchPath) -> Vector:
        """An expression at each aggregated row, which "current" is here."""
        read: list[Expression] = []
        expression = replace_with_cells(argument, read)

        def value(cell: Cell) -> Vector:
            leaf = read[cell.variable]
            if isinstance(leaf, MatchNumber):
                return Vector(np.full(len(rows), path.number))
            assert isinstance(leaf, RowRead | Classifier)
            at = rows + leaf.shift
            if isinstance(leaf, Classifier):
                inside = (at >= path.begin) & (at <= path.row)
                return Vector(path.labels[np.where(inside, at, path.begin) - path.begin], inside)
            low, high = self._table.begin_of[path.row], self._table.end_of[path.row]
            inside = (at >= low) & (at < high)
            if (at >= high).any():
                self._look_behind(path)
            if leaf.column is None:
                return Vector(np.ones(len(rows), np.bool_), inside)
            found = self._table.columns.gather(leaf.column, leaf.type, np.where(inside, at, low))
            valid = inside if found.valid is None else inside & found.valid
            return Vector(found.values, valid, found.nan_free)

        vector = evaluate_expression(expression, value, self._table.columns, self._tally)
        shape = (len(rows),)
        valid = None if vector.valid is None else np.broadcast_to(vector.valid, shape)
        return Vector(np.broadcast_to(vector.values, shape), valid)


def _start_row(leaf: RowRead | Classifier, path: _SearchPath) -> int | None:
    """The row from which `shift` counts."""
    if leaf.anchor == "current":
        return path.row
    rows = path.rows(leaf.variables)
    if leaf.offset >= len(rows):
        return None
    return int(rows[leaf.offset if leaf.anchor == "first" else -1 - leaf.offset])


def _distinct_values(values: Vector) -> Vector:
    """Each value once, NULLs dropped. NaN equals NaN, -0.0 equals 0.0."""
    kept = values.values if values.valid is None else values.values[values.valid]
    if kept.dtype == object:
        return Vector(np.array(list(dict.fromkeys(kept.tolist())), object))
    _, first = np.unique(kept + 0 if kept.dtype.kind == "f" else kept, return_index=True)
    return Vector(kept[np.sort(first)])


def _single_value(value: Any) -> Vector:
    return Vector(np.array([value]))


_NULL_VALUE = Vector(np.zeros(1, np.bool_), np.zeros(1, np.bool_))


# --------------------------------------------------------------------------------------------------
# Runs the kernel over a bucket: gives it room, answers what it asks, hands on what it found.
#
# Matches come in blocks of bounded size. The kernel is called again where it stopped. A batch is a
# search of partitions that have ended; where rows may still come, `standing` says afterwards how
# far it got.
# --------------------------------------------------------------------------------------------------


# Matched rows of one block: the labels of one more partition fit in besides.
BLOCK_ROWS: Final = 1 << 21
FIRST_STACK_SIZE: Final = 1 << 10
# Ways that wait to be tried, of 32 bytes each: one or two a row where a repetition is greedy.
MOST_STACK_SIZE: Final = 1 << 27
# Rows have a number of 32 bits.
MOST_ROWS: Final = (1 << 31) - 1
# A question takes Python 50 to 500 us, a step 10 to 100 ns.
QUESTION_STEPS: Final = 2_000


@dataclass(frozen=True)
class MatchBlock:
    """Matches in the order of their partitions and rows. `number` is NULL (-1) where a row stands
    for itself, unmatched; a match of length 0 is empty and stands at `start`. `bounds`: where the
    rows of each match begin and end in `labels`; a label is twice the variable, plus 1 if the row
    is excluded from the answer."""

    start: Array
    length: Array
    number: Array
    labels: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class SearchCounts:
    """`steps`: instructions tried. `hits`: ways not gone because they had failed before."""

    matches: int = 0
    empty_matches: int = 0
    unmatched_rows: int = 0
    steps: int = 0
    hits: int = 0
    asked: int = 0


class KernelSearch:
    """`ends`: of which partitions the end is known; by default of all. `standing`: where the
    searches stand, once the blocks have been walked through."""

    def __init__(
        self,
        made: KernelProgram,
        table: RowTable,
        tally: ErrorTally,
        ends: PartitionEnds,
    ) -> None:
        if table.size + len(table.begins) > MOST_ROWS:
            raise bucket_size_error(table.size, MOST_ROWS)
        self._made = made
        self._table = table
        self._tally = tally
        self._ends = ends
        self._asking = PythonEvaluator(made, table, tally, self._ends)
        self.counts = SearchCounts()

    @property
    def standing(self) -> SearchProgress:
        return self._ends.standing()

    def blocks(self) -> Iterator[MatchBlock]:
        if not self._table.size:
            return
        table, made = self._table, self._made
        longest = int((table.ends - table.begins).max())
        rows = min(table.size, BLOCK_ROWS)
        found = r.KernelMatches(
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows + longest, np.int32),
        )
        state = np.zeros(r.STATE_SIZE, np.int64)
        state[r.PARTITION], state[r.BEGIN] = -1, table.size
        fixed = (
            arrays.kernel_instructions(made),
            arrays.kernel_rows(made, table, self._tally, self._ends),
            arrays.kernel_conditions(made, table, self._ends),
            arrays.kernel_path(made, table),
            arrays.kernel_memo(made, table),
        )
        ways = _new_stack(FIRST_STACK_SIZE)
        kernel = loading.load_kernel()
        while True:
            stop = kernel(*fixed, ways, found, state)
            if stop == r.STACK_FULL:
                if len(ways.pc) >= MOST_STACK_SIZE:
                    raise stack_limit_error(table, int(state[r.BEGIN]), MOST_STACK_SIZE)
                ways = _grow_stack(ways)
            elif stop == r.QUESTION:
                self._answer(state, found)
            elif stop in (r.DONE, r.OUTPUT_FULL):
                yield _match_block(state, found)
                state[r.FOUND] = state[r.LABELS] = 0
                if stop == r.DONE:
                    break
            else:
                raise self._error(stop, state)
        self._count(state)

    def _answer(self, state: Array, found: r.KernelMatches) -> None:
        self.counts.asked += 1
        state[r.ANSWER] = self._asking.answer(state, found.labels)
        state[r.PHASE] = r.ANSWERED
        if self._made.program.limits.backtracking_steps is None:
            # The limit that nobody set bounds the time; one that is set counts steps.
            state[r.STEPS_BEFORE] -= QUESTION_STEPS

    def _count(self, state: Array) -> None:
        self._tally.errors += int(state[r.ERRORS])
        counts = self.counts
        counts.matches, counts.empty_matches = int(state[r.MATCHES]), int(state[r.EMPTY])
        counts.unmatched_rows = int(state[r.UNMATCHED])
        counts.steps, counts.hits = int(state[r.STEPS]), int(state[r.HITS])

    def _error(self, stop: int, state: Array) -> CepError:
        begin = int(state[r.BEGIN])
        if stop == r.SKIPS_NOWHERE:
            return missing_skip_row_error(self._table, begin)
        if stop == r.SKIPS_IN_PLACE:
            return endless_skip_error(self._table, begin)
        limit = self._made.program.limits.backtracking_steps
        allowed = arrays.DEFAULT_STEP_LIMIT if limit is None else limit
        taken = int(state[r.STEPS] - state[r.STEPS_BEFORE])
        return step_limit_error(self._table, begin, allowed, taken)


def _match_block(state: Array, found: r.KernelMatches) -> MatchBlock:
    size, labels = int(state[r.FOUND]), int(state[r.LABELS])
    length = found.length[:size].copy()
    return MatchBlock(
        found.start[:size].copy(),
        length,
        found.number[:size].copy(),
        found.labels[:labels].copy(),
        np.concatenate([[0], np.cumsum(length)]),
    )


def _new_stack(size: int) -> r.BacktrackStack:
    return r.BacktrackStack(
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, np.int64),
        np.zeros(2 * size, np.int64),
    )


def _grow_stack(ways: r.BacktrackStack) -> r.BacktrackStack:
    return r.BacktrackStack(*(np.concatenate([each, np.zeros_like(each)]) for each in ways))
