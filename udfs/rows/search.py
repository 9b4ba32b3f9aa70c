"""The search for matches row by row: runs the compiled kernel over a bucket.

The kernel stops when an array is full, when a condition needs Python, or at an error, and is
called again where it stopped. Matches come in blocks of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_cep.udfs.errors import CepError, LimitError
from spark_cep.udfs.row_program import Aggregate, Classifier, MatchNumber, RowRead
from spark_cep.udfs.rows import arrays, loading
from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.bounds import SearchBounds
from spark_cep.udfs.rows.folds import FoldedPath, RunningFold, is_python_fold
from spark_cep.udfs.rows.instructions import MATCH
from spark_cep.udfs.rows.leaves import replace_with_cells
from spark_cep.udfs.rows.records import BEGIN, LABELS, NO, NOT_YET, NUMBER, PC, ROW, YES
from spark_cep.udfs.rows.stretches import StretchEvaluator
from spark_cep.udfs.task_clock import TaskClock, WorkReport
from spark_cep.udfs.values.evaluate import condition_holds, evaluate_expression, fold_list
from spark_cep.udfs.values.vectors import Vector

if TYPE_CHECKING:
    from spark_cep.udfs.expressions import Cell, Expression
    from spark_cep.udfs.rows.compiled import KernelProgram
    from spark_cep.udfs.rows.table import PartitionEnds, RowTable, SearchProgress
    from spark_cep.udfs.values.arrow_values import Array
    from spark_cep.udfs.values.tally import ErrorTally


# ---- errors that only the rows can cause -------------------------------------------------------


def step_limit_error(table: RowTable, begin: int, allowed: int, reached: int) -> LimitError:
    """`begin`: where the search began."""
    where, row = _search_place(table, begin)
    return LimitError(
        f"{where} took more than {allowed:,} steps of the matcher for {_pattern_name(table)}, the "
        f"last ones for a match that begins at row {row + 1:,}",
        hint="the usual cause is a condition on LAST, FIRST or an aggregate inside nested "
        "repetitions: bound the repetitions, add WITHIN or a partition key, or raise the limit: "
        f"limits=cep.Limits(backtracking_steps={allowed * 10}), or in SQL after the clause "
        f"/*+ backtracking_steps({allowed * 10}) */",
        details={
            "key": table.key_of(begin), "row": row, "limit": "backtracking_steps",
            "allowed": allowed, "reached": reached,
        },
    )  # fmt: skip


def stack_limit_error(table: RowTable, begin: int, allowed: int) -> LimitError:
    where, row = _search_place(table, begin)
    return LimitError(
        f"{where}: the search of {_pattern_name(table)} for a match that begins at row {row + 1:,} "
        f"has more than {allowed:,} alternatives left to try",
        hint="bound the repetitions in the pattern, or add WITHIN or a partition key",
        details={
            "key": table.key_of(begin), "row": row, "limit": "ways",
            "allowed": allowed, "reached": allowed,
        },
    )  # fmt: skip


def bucket_size_error(reached: int, allowed: int) -> LimitError:
    return LimitError(
        f"a bucket of {reached:,} rows is too large for the matcher, which takes {allowed:,}",
        hint="partition by more columns, or set spark.cep.buckets to more buckets",
        details={"limit": "bucket_rows", "allowed": allowed, "reached": reached},
    )


def _pattern_name(table: RowTable) -> str:
    return f"the row pattern of {', '.join(each.name for each in table.program.variables)}"


def _search_place(table: RowTable, begin: int) -> tuple[str, int]:
    key = table.key_of(begin)
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    return where, int(table.places(np.array([begin]))[0])


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
        f"{where}: {what} would go to the first row of the match that begins at row {row + 1} "
        "and find the same match again",
        hint="skip to a variable that comes later in the match, or use SKIP TO NEXT ROW",
        details={"key": table.key_of(begin), "row": row},
    )


def _skip_place(table: RowTable, begin: int) -> tuple[str, str, int]:
    key, program = table.key_of(begin), table.program
    where = f"partition key {key!r}" if key else "the only partition (no PARTITION BY)"
    names = sorted(program.variables[v].name for v in program.skip.variables)
    what = f"AFTER MATCH SKIP TO {program.skip.kind.upper()} {' or '.join(names)}"
    return where, what, int(table.places(np.array([begin]))[0])


def report_search(
    table: RowTable, begin: int, steps: int, bound: Array | None = None
) -> WorkReport:
    """What a search that takes long is doing. `steps`: in this partition so far. `bound`: the rows
    that the path now under test binds to each variable."""
    where, row = _search_place(table, begin)
    size = int(table.end_of[begin] - table.begin_of[begin])
    variables = table.program.variables
    rows = {variables[v].name: int(n) for v, n in enumerate(() if bound is None else bound) if n}
    path = ", ".join(f"{name} on {count:,} rows" for name, count in rows.items())
    return WorkReport(
        _pattern_name(table),
        f"{where}, now in the search for a match that begins at row {row + 1:,}",
        f"{steps:,} steps of the matcher in a partition of {size:,} rows"
        + (f"; the path under test has {path}" if path else ""),
        "bound the repetitions, add WITHIN or a partition key",
        {"key": table.key_of(begin), "row": row, "steps": steps, "rows": rows},
    )


# ---- conditions that Python tests --------------------------------------------------------------


@dataclass(frozen=True)
class _SearchPath:
    """The rows of a search so far, the one under test included, and the variables that they are
    bound to."""

    begin: int
    row: int
    labels: Array
    number: int

    def rows(self, variables: frozenset[int] | None) -> Array:
        rows = np.arange(self.begin, self.row + 1)
        return rows if variables is None else rows[np.isin(self.labels, list(variables))]


class PythonEvaluator:
    """Tests the conditions that the kernel cannot compute, one row at a time: decimals beyond 64
    bits, functions of Spark, aggregates whose argument has CLASSIFIER(). Exact for every type and
    function that the driver accepts, and a hundred to a thousand times slower than the kernel."""

    def __init__(
        self, made: KernelProgram, table: RowTable, tally: ErrorTally, ends: PartitionEnds
    ) -> None:
        self._made = made
        self._table = table
        self._tally = tally
        self._is_open = ends.open_rows(table)
        self._read_past_end = False
        self._stretches: dict[int, StretchEvaluator] = {}
        # What the last answer costs beyond a question.
        self.last_steps = 0
        self._folds: dict[Aggregate, RunningFold] = {}
        # What aggregates have cost since the charge was taken, in steps.
        self._fold_steps = 0

    def take_fold_steps(self) -> int:
        taken, self._fold_steps = self._fold_steps, 0
        return taken

    def answer(self, state: Array, labels: Array) -> int:
        """Whether the condition that the kernel stopped at holds, or whether the match that it
        found can be shown: YES, NO, or NOT_YET if that depends on rows behind an open end."""
        if self._made.code.op[state[PC]] == MATCH:
            return self._can_be_shown(state, labels)
        self._read_past_end = False
        self.last_steps = 0
        holds = self._condition(state, labels)
        if self._read_past_end:
            return NOT_YET
        return YES if holds else NO

    def _can_be_shown(self, state: Array, labels: Array) -> int:
        """The last row of the match that is shown reads furthest ahead: the row from which a
        running measure reads only moves forward."""
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
        variable = int(self._made.code.label[state[PC]]) >> 1
        condition = self._made.conditions[variable].path
        assert condition is not None
        bound = labels[base : base + row + 1 - begin]
        if variable not in self._stretches:
            self._stretches[variable] = StretchEvaluator(condition, self._table, self._tally)
        stretches = self._stretches[variable]
        if stretches.is_possible:
            return self._in_stretch(stretches, begin, row, bound)
        path = _SearchPath(begin, row, bound >> 1, int(state[NUMBER]) + 1)
        read: list[Expression] = []
        expression = replace_with_cells(condition, read)
        self.last_steps = EVALUATION_STEPS + PATH_ROW_STEPS * len(bound)
        found = condition_holds(
            expression,
            lambda cell: self._read(read[cell.variable], path),
            self._table.columns,
            self._tally,
        )
        return bool(np.all(found))

    def _in_stretch(self, stretches: StretchEvaluator, begin: int, row: int, bound: Array) -> bool:
        low, high = int(self._table.begin_of[row]), int(self._table.end_of[row])
        rows: list[int | None] = []
        is_beyond = row + stretches.most_ahead >= high
        for place in stretches.anchored:
            found = place.row(bound, begin)
            at = None if found is None else found + place.leaf.shift
            is_beyond |= at is not None and at >= high
            rows.append(at if at is not None and low <= at < high else None)
        self._read_past_end |= is_beyond and bool(self._is_open[row])
        before = stretches.evaluated
        holds = stretches.holds(row, tuple(rows))
        if stretches.evaluated > before:
            evaluated = stretches.evaluated - before
            self.last_steps = EVALUATION_STEPS + STRETCH_ROW_STEPS * evaluated
        return holds

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
            self._note_read_past_end(path)
        return int(at) if low <= at < high else None

    def _note_read_past_end(self, path: _SearchPath) -> None:
        self._read_past_end |= bool(self._is_open[path.row])

    def _aggregate(self, leaf: Aggregate, path: _SearchPath) -> Vector:
        if is_python_fold(leaf.name):
            return self._folded(leaf, path)
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

    def _folded(self, leaf: Aggregate, path: _SearchPath) -> Vector:
        fold = self._folds.get(leaf)
        if fold is None:
            fold = self._folds[leaf] = RunningFold(leaf, self._table, self._tally)
        found = fold.value(FoldedPath(path.begin, path.labels, path.number))
        self._fold_steps += fold.cost
        if fold.reads_past_end:
            self._note_read_past_end(path)
        return found

    def _argument(self, argument: Expression, rows: Array, path: _SearchPath) -> Vector:
        """The expression at each aggregated row, which is the current row in it."""
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
                self._note_read_past_end(path)
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
    """The row from which `shift` counts; None if there is none."""
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


# ---- the search --------------------------------------------------------------------------------


# Matched rows of one block; there is space for the labels of one more partition.
BLOCK_ROWS: Final = 1 << 21
FIRST_STACK_SIZE: Final = 1 << 10
# Alternatives left to try, of 32 bytes each: one or two for each row of a greedy repetition.
MOST_STACK_SIZE: Final = 1 << 27
# Rows are numbered with 32 bits.
MOST_ROWS: Final = (1 << 31) - 1
# The kernel takes a step in 8 to 19 ns. To stop for a question to Python and to continue takes 20
# to 40 us; to evaluate a condition another 80 to 200 us, about 1 us for each row of a stretch, and
# 15 to 60 ns for each row of the path.
QUESTION_STEPS: Final = 2_500
EVALUATION_STEPS: Final = 10_000
STRETCH_ROW_STEPS: Final = 100
PATH_ROW_STEPS: Final = 4
# What a question is charged at least for each second of the processor that it took: half of what
# the steps of a second are. So the limit on steps depends on the data alone, unless a condition
# takes much longer than others do, as a distance of long strings.
STEPS_PER_SECOND: Final = 40_000_000
# Steps of one call of the kernel, 0.1 to 0.2 s: calling it again takes 0.1 ms.
CALL_STEPS: Final = 1 << 23


@dataclass(frozen=True)
class MatchBlock:
    """Matches in the order of their partitions and rows. `number` is -1 for an unmatched row; a
    match of length 0 is empty, at `start`. `bounds`: where the rows of each match begin and end in
    `labels`; a label is twice the variable, plus 1 if the row is excluded from the answer."""

    start: Array
    length: Array
    number: Array
    labels: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.start)

    def before(self, position: int) -> MatchBlock:
        """Those of one partition that begin before a position."""
        count = int(np.searchsorted(self.start, position))
        return MatchBlock(
            self.start[:count],
            self.length[:count],
            self.number[:count],
            self.labels[: self.bounds[count]],
            self.bounds[: count + 1],
        )


@dataclass
class SearchCounts:
    """`steps`: instructions tried. `hits`: searches cut short because they had failed before.
    `asked`: conditions that Python tested."""

    matches: int = 0
    empty_matches: int = 0
    unmatched_rows: int = 0
    steps: int = 0
    hits: int = 0
    asked: int = 0

    def add_matches(self, block: MatchBlock, begin: int) -> None:
        """Counts the matches of a block from number `begin` on."""
        is_match = block.number[begin:] >= 0
        self.matches += int(is_match.sum())
        self.empty_matches += int((is_match & (block.length[begin:] == 0)).sum())
        self.unmatched_rows += int((~is_match).sum())

    def without(self, other: SearchCounts) -> SearchCounts:
        """These counts without other matches. The work for them remains."""
        return replace(
            self,
            matches=self.matches - other.matches,
            empty_matches=self.empty_matches - other.empty_matches,
            unmatched_rows=self.unmatched_rows - other.unmatched_rows,
        )


class KernelSearch:
    """Matches the rows of a table. `blocks` is walked through once; `standing` is how far the
    search of each partition has come then. `ends`: which partitions may still get rows. `clock`: of
    the task; None: it begins with this search."""

    def __init__(
        self,
        made: KernelProgram,
        table: RowTable,
        tally: ErrorTally,
        ends: PartitionEnds,
        clock: TaskClock | None = None,
    ) -> None:
        if table.size + len(table.begins) > MOST_ROWS:
            raise bucket_size_error(table.size, MOST_ROWS)
        self._made = made
        self._table = table
        self._tally = tally
        self._ends = ends
        self._evaluator = PythonEvaluator(made, table, tally, self._ends)
        self.counts = SearchCounts()
        limits = made.program.limits
        self._clock = TaskClock(limits.seconds) if clock is None else clock
        self._bound_after = 0
        # The partition at the last look at the clock, and the time spent in it since then.
        self._partition, self._seconds = -1, 0.0

    @property
    def standing(self) -> SearchProgress:
        return self._ends.progress()

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
            np.zeros(rows + longest * (1 + made.program.longest), np.int32),
        )
        state = np.zeros(r.STATE_SIZE, np.int64)
        state[r.PARTITION], state[r.BEGIN] = -1, table.size
        kernel_rows = arrays.kernel_rows(made, table, self._tally, self._ends)
        bounds = SearchBounds(made, table, kernel_rows)
        instructions = arrays.kernel_instructions(made)
        self._bound_after = int(instructions.settings[7])
        fixed = (
            instructions,
            kernel_rows,
            arrays.kernel_conditions(made, table, self._ends),
            arrays.kernel_path(made, table),
            arrays.kernel_memo(made, table),
            bounds.kernel,
        )
        stack = _new_stack(FIRST_STACK_SIZE)
        kernel = loading.load_function("search")
        search = kernel.bind(*fixed, stack, found, state)
        while True:
            state[r.PAUSE_AT] = state[r.STEPS] + state[r.CHARGED] + CALL_STEPS
            stop = search()
            if stop != r.DONE and self._clock.is_due():
                self._look_at_clock(state, found)
            if stop == r.PAUSED:
                continue
            if stop == r.STACK_FULL:
                if len(stack.pc) >= MOST_STACK_SIZE:
                    raise stack_limit_error(table, int(state[r.BEGIN]), MOST_STACK_SIZE)
                stack = _grow_stack(stack)
                search = kernel.bind(*fixed, stack, found, state)
            elif stop == r.NEEDS_BOUNDS:
                begin = state[r.BOUND_FROM] = state[r.BEGIN]
                state[r.BOUND_TO] = bounds.compute(
                    int(state[r.PARTITION]), int(begin), int(state[r.NUMBER])
                )
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

    def _look_at_clock(self, state: Array, found: r.KernelMatches) -> None:
        partition, since = int(state[r.PARTITION]), self._clock.tick()
        self._seconds = self._seconds + since if partition == self._partition else 0.0
        self._partition = partition
        self._clock.report(self._seconds, lambda: self._report(state, found))

    def _report(self, state: Array, found: r.KernelMatches) -> WorkReport:
        table, partition = self._table, int(state[r.PARTITION])
        begin = min(int(state[r.BEGIN]), int(table.ends[partition]) - 1)
        base, count = int(state[r.LABELS]), int(state[r.ROW]) - begin
        is_searching = state[r.PHASE] != r.SEARCH and count > 0
        bound = found.labels[base : base + count] >> 1 if is_searching else np.zeros(0, np.int64)
        return report_search(table, begin, _steps_taken(state), np.bincount(bound))

    def _answer(self, state: Array, found: r.KernelMatches) -> None:
        self.counts.asked += 1
        started = thread_time()
        state[r.ANSWER] = self._evaluator.answer(state, found.labels)
        state[r.PHASE] = r.ANSWERED
        cost = self._evaluator.last_steps + self._evaluator.take_fold_steps()
        spent = int((thread_time() - started) * STEPS_PER_SECOND)
        state[r.CHARGED] += QUESTION_STEPS + max(cost, spent)
        if state[r.CHARGED] > self._bound_after:
            state[r.BOUNDING] = 1

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
        return step_limit_error(self._table, begin, allowed, _steps_taken(state))


def _steps_taken(state: Array) -> int:
    """In the partition so far, as charged."""
    return int(state[r.STEPS] - state[r.STEPS_BEFORE] + state[r.CHARGED])


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


def _grow_stack(stack: r.BacktrackStack) -> r.BacktrackStack:
    return r.BacktrackStack(*(np.concatenate([each, np.zeros_like(each)]) for each in stack))
