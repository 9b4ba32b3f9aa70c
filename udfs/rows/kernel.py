"""The matcher: one compiled function that runs any program over all partitions of a bucket.

It tries the alternatives of a pattern depth first, in the order of preference, so the first match
found is the preferred one. Everything it needs to continue is in arrays: it can stop anywhere, for
a full output, a full stack or a question that only Python can answer, and be called again. It is
compiled with the same types for all programs, to object code (`object_code`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_cep.udfs.rows import records as r
from spark_cep.udfs.rows.instructions import (
    CHAR,
    END,
    END_BIT,
    MATCH,
    OVERFLOW_BIT,
    SPLIT,
    START,
)
from spark_cep.udfs.rows.interpreter import evaluate_condition, find_anchor_row, pop_row, push_row
from spark_cep.udfs.rows.jit import jit
from spark_cep.udfs.rows.records import (
    ANSWER,
    ANSWERED,
    BEGIN,
    BEST,
    BEST_PC,
    BOUND_FROM,
    BOUND_TO,
    BOUNDING,
    CHARGED,
    CHOSEN,
    COVERED,
    DEPTH,
    DONE,
    EMPTY,
    EPOCH,
    ERRORS,
    FARTHEST,
    FORGOTTEN,
    FOUND,
    HAS_FIRST,
    HITS,
    IS_OPEN,
    LABELS,
    MATCHES,
    MERGING,
    NEEDS_BOUNDS,
    NEXT,
    NEXT_COVERED,
    NEXT_NUMBER,
    NEXT_ROW,
    NOT_YET,
    NUMBER,
    OUTPUT_FULL,
    PARTITION,
    PAST_LAST,
    PAUSE_AT,
    PAUSED,
    PC,
    PHASE,
    QUESTION,
    RESUME,
    ROW,
    SEARCH,
    SKIPS_IN_PLACE,
    SKIPS_NOWHERE,
    STACK_FULL,
    STEPS,
    STEPS_BEFORE,
    TO_FIRST,
    TOO_MANY_STEPS,
    TRAIL,
    UNMATCHED,
    YES,
    BacktrackStack,
    KernelBounds,
    KernelConditions,
    KernelInstructions,
    KernelMatches,
    KernelMemo,
    KernelPath,
    KernelRows,
)

END_MASK = np.uint64(END_BIT)
ANY_VARIABLE = np.uint64((1 << 64) - 1)
# What comparing paths costs beyond one step for each value, in steps: a look far into memory.
MERGE_CHARGE = 8


@jit
def search(
    program: KernelInstructions,
    rows: KernelRows,
    conditions: KernelConditions,
    path: KernelPath,
    memory: KernelMemo,
    bounds: KernelBounds,
    stack: BacktrackStack,
    matches: KernelMatches,
    state: Any,
) -> int:
    """Runs until the last partition is done, or until something is needed: one of the reasons to
    stop in `records`.

    A search that reaches an instruction at a row where a search has been before cannot do better
    than that one, which failed, or it would have ended with a match. So instructions are marked on
    arrival, and the marks on the way to a match are removed when it is found. This is sound where
    nothing ahead reads the path (`marks`, one bit each, valid for all searches of a partition);
    otherwise only among paths that agree in everything that is read ahead (`merged`, a table of
    bounded size that overwrites entries).

    Where a partition takes many steps, searches get bounds (`bounds.py`): an instruction from which
    every way to a match needs a row that cannot come any more fails at once.

    The last known row of an open partition is not its end. A search that needs a row beyond it, or
    whose conditions or measures read beyond it, is undecided: the kernel leaves the partition with
    the search where it began, and nothing undecided gets into the output.
    """
    entry, skip, shows_unmatched = program.settings[0], program.settings[1], program.settings[2]
    measures_ahead, step_limit = program.settings[3], program.settings[4]
    words, merge_after, bound_after = program.settings[5], program.settings[6], program.settings[7]
    longest = program.settings[8] != 0
    op, first, second, need = program.op, program.first, program.second, program.need
    places, label_of, may = program.place, program.label, rows.may
    has_limit = rows.limit.shape[0] > 0
    has_sets = path.sizes.shape[0] > 0
    mark_rows = memory.marks.shape[0] // words if words else np.int64(0)
    keeps_all = mark_rows >= may.shape[0] + rows.begin.shape[0]
    merge_mask = memory.merged.shape[0] // 2 - 1
    part, begin, number = state[PARTITION], state[BEGIN], state[NUMBER]
    covered, pc, row = state[COVERED], state[PC], state[ROW]
    depth, trail, steps = state[DEPTH], state[TRAIL], state[STEPS]
    pause_at = state[PAUSE_AT]
    base = state[LABELS]
    charged, bound_from, bound_to = state[CHARGED], state[BOUND_FROM], state[BOUND_TO]
    is_bounded = begin < bound_to
    group_of, until = bounds.group, bounds.until
    stack_size, trail_size = stack.pc.shape[0], stack.marked.shape[0]
    labels = matches.labels
    phase = state[PHASE]
    stop = -1
    undecided = False
    low, high, limit, last = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    is_open = False
    # What can come at `last`: no row, or any row that has not arrived yet.
    last_word = END_MASK
    if 0 <= part < rows.begin.shape[0]:
        low, high = rows.begin[part], rows.end[part]
        is_open = rows.parts[part, IS_OPEN] != 0
        if phase != SEARCH:
            limit = limit_of(rows, part, begin)
            last, last_word = min(limit, high), ANY_VARIABLE if limit > high else END_MASK
    word = np.uint64(0)
    if phase != SEARCH:
        word = may[row] | END_MASK if row < last else last_word

    while True:
        if phase == SEARCH:
            if part >= rows.begin.shape[0]:
                stop = DONE
                break
            if begin >= high:
                if part >= 0 and not undecided:
                    rows.parts[part, NEXT] = begin
                    rows.parts[part, NEXT_COVERED] = covered
                    rows.parts[part, NEXT_NUMBER] = number
                undecided = False
                part += 1
                if part < rows.begin.shape[0]:
                    low, high = rows.begin[part], rows.end[part]
                    begin, covered = rows.parts[part, NEXT], rows.parts[part, NEXT_COVERED]
                    number = rows.parts[part, NEXT_NUMBER]
                    is_open = rows.parts[part, IS_OPEN] != 0
                    state[STEPS_BEFORE] = steps
                    state[MERGING] = 0
                    state[BOUNDING] = 1 if bound_after == 0 else 0
                    pause_at -= charged
                    charged = np.int64(0)
                    bound_from, bound_to = np.int64(0), np.int64(0)
                continue
            # Skip the rows at which no search can begin.
            while begin < high and not ((may[begin] | END_MASK) & need[entry]):
                if shows_unmatched and begin >= covered:
                    break
                begin += 1
            if begin >= high:
                continue
            # The longest match so far is kept behind the labels of the path.
            room = (high - begin) * (2 if longest else 1)
            if state[FOUND] >= matches.start.shape[0] or base + room > labels.shape[0]:
                stop = OUTPUT_FULL
                break
            if state[BOUNDING] and begin >= bound_to:
                stop = NEEDS_BOUNDS
                break
            is_bounded = begin < bound_to
            if words and not keeps_all and begin + part > state[FORGOTTEN]:
                clear_marks(memory, words, state[FORGOTTEN], begin + part)
                state[FORGOTTEN] = begin + part
            limit = limit_of(rows, part, begin)
            last, last_word = min(limit, high), ANY_VARIABLE if limit > high else END_MASK
            pc, row, depth, trail = np.int64(entry), begin, np.int64(0), np.int64(0)
            word = may[row] | END_MASK
            state[FARTHEST] = row
            state[BEST] = 0
            phase = RESUME

        # One instruction.
        verdict = True
        is_match = False
        if phase == ANSWERED:
            phase = RESUME
            verdict = state[ANSWER] == YES
            undecided = state[ANSWER] == NOT_YET
            if op[pc] == MATCH:
                is_match = verdict
            elif verdict:
                pc = np.int64(first[pc])
                row += 1
                word = may[row] | END_MASK if row < last else last_word
            else:
                pop_row(path, label_of[pc] >> 1, row)
        elif phase == CHOSEN:
            phase = RESUME
            if is_open and begin < row and row - 1 + measures_ahead >= high:
                stop = QUESTION
                break
            is_match = True
        else:
            if (depth >= stack_size) | (trail >= trail_size) | (steps + charged > pause_at):
                stop = PAUSED if steps + charged > pause_at else STACK_FULL
                break
            steps += 1
            if not word & need[pc] or (
                is_bounded
                and group_of[pc] >= 0
                and (row >= until[group_of[pc], begin - bound_from])
            ):
                verdict = False
            else:
                place = places[pc]
                if place >= 0:
                    if row - begin < mark_rows:
                        # Each partition has one more place, after its last row.
                        slot = row + part if keeps_all else (row + part) % mark_rows
                        at = slot * words + (place >> 6)
                        bit = np.uint64(1) << np.uint64(place & 63)
                        if memory.marks[at] & bit:
                            verdict = False
                            state[HITS] += 1
                        else:
                            memory.marks[at] |= bit
                            stack.marked[trail] = (at << 6) | (place & 63)
                            trail += 1
                elif place < -1 and state[MERGING]:
                    charged += MERGE_CHARGE + memory.keys[-1 - place] - memory.keys[-2 - place]
                    mix = path_fingerprint(
                        memory, -2 - place, conditions, path, labels, base, begin, row,
                        (low, high), (number, limit), state[EPOCH],
                    )  # fmt: skip
                    here = (np.int64(pc) << 32) | (row + part)
                    at = np.int64(mix_bits(mix, np.uint64(here)) & np.uint64(merge_mask)) * 2
                    if mix == np.uint64(0):
                        pass
                    elif memory.merged[at] == np.uint64(here) and memory.merged[at + 1] == mix:
                        verdict = False
                        state[HITS] += 1
                    else:
                        memory.merged[at] = np.uint64(here)
                        memory.merged[at + 1] = mix
            if verdict:
                what = op[pc]
                if what == CHAR:
                    variable = label_of[pc] >> 1
                    if row >= high:
                        undecided = True
                    elif variable >= OVERFLOW_BIT and not rows.more[variable - OVERFLOW_BIT, row]:
                        verdict = False
                    elif is_open and row + rows.reach[variable] >= high:
                        undecided = True
                    else:
                        labels[base + row - begin] = label_of[pc]
                        charged += conditions.charge[variable]
                        if has_sets:
                            push_row(path, conditions, variable, row)
                        at = conditions.start[variable]
                        if at != -1:
                            answer = r.NEEDS_PYTHON
                            if at >= 0:
                                answer = evaluate_condition(
                                    conditions, path, labels, base, at, begin, row,
                                    (low, high, is_open), number + 1,
                                )  # fmt: skip
                            if answer == r.NEEDS_PYTHON:
                                stop = QUESTION
                                break
                            if answer != r.TRUE:
                                verdict = False
                                undecided = answer == r.NEEDS_LATER_ROW
                                if answer == r.ERROR:
                                    state[ERRORS] += 1
                                if has_sets:
                                    pop_row(path, variable, row)
                        if verdict:
                            pc = np.int64(first[pc])
                            row += 1
                            word = may[row] | END_MASK if row < last else last_word
                elif what == SPLIT:
                    left, right = first[pc], second[pc]
                    if not word & need[left]:
                        pc = np.int64(right)
                    else:
                        if word & need[right]:
                            stack.pc[depth] = right
                            stack.row[depth] = row
                            stack.trail[depth] = trail
                            depth += 1
                        pc = np.int64(left)
                elif what == START:
                    verdict = row == low and rows.parts[part, HAS_FIRST] != 0
                    pc = np.int64(first[pc])
                elif what == END:
                    verdict = row == high
                    undecided = verdict and is_open
                    pc = np.int64(first[pc])
                elif what == MATCH and longest:
                    # Others may be longer. Where the row allows none, this one is.
                    verdict = False
                    if row - begin >= state[BEST]:
                        state[BEST], state[BEST_PC] = row - begin + 1, pc
                        keep = base + high - begin
                        for at in range(row - begin):
                            labels[keep + at] = labels[base + at]
                    if row == limit:
                        depth = np.int64(0)
                elif what == MATCH:
                    if is_open and begin < row and row - 1 + measures_ahead >= high:
                        stop = QUESTION
                        break
                    is_match = True
        state[FARTHEST] = max(state[FARTHEST], row)

        if undecided:
            # Leave the partition where this search began.
            if has_sets:
                for at in range(row - 1, begin - 1, -1):
                    pop_row(path, labels[base + at - begin] >> 1, at)
            rows.parts[part, NEXT] = begin
            rows.parts[part, NEXT_COVERED] = covered
            rows.parts[part, NEXT_NUMBER] = number
            begin = high
            phase = SEARCH
        elif is_match:
            phase = SEARCH
            while trail > 0:
                trail -= 1
                mark = stack.marked[trail]
                memory.marks[mark >> 6] &= ~(np.uint64(1) << np.uint64(mark & 63))
            if steps - state[STEPS_BEFORE] + charged > step_limit:
                stop = TOO_MANY_STEPS
                break
            length = row - begin
            # Its rows are written to the answer.
            charged += length
            number += 1
            state[EPOCH] += 1
            target = np.int64(1)
            if length:
                target = np.int64(skip_target(skip, rows, labels, base, length))
                if target <= 0:
                    stop = SKIPS_NOWHERE if target < 0 else SKIPS_IN_PLACE
                    break
            slot = state[FOUND]
            matches.start[slot] = begin
            matches.length[slot] = length
            matches.number[slot] = number
            state[FOUND] = slot + 1
            state[MATCHES] += 1
            if length:
                covered = max(covered, row)
            else:
                state[EMPTY] += 1
            if has_sets:
                for at in range(row - 1, begin - 1, -1):
                    pop_row(path, labels[base + at - begin] >> 1, at)
            base += length
            begin += target
            if (has_limit or longest) and words:
                clear_marks(memory, words, matches.start[slot] + part, state[FARTHEST] + part + 1)
        elif not verdict:
            taken = steps - state[STEPS_BEFORE]
            if taken + charged > step_limit:
                stop = TOO_MANY_STEPS
                break
            if taken > merge_after * (1 + row - low):
                state[MERGING] = 1
                if taken > bound_after:
                    state[BOUNDING] = 1
            back = begin
            if depth:
                back = np.int64(stack.row[depth - 1])
            if has_sets:
                for at in range(row - 1, back - 1, -1):
                    pop_row(path, labels[base + at - begin] >> 1, at)
            if depth:
                depth -= 1
                pc, trail = np.int64(stack.pc[depth]), np.int64(stack.trail[depth])
                row = back
                word = may[row] | END_MASK if row < last else last_word
                if state[BOUNDING] and not is_bounded:
                    stop = NEEDS_BOUNDS
                    break
            elif longest and state[BEST]:
                pc, row = np.int64(state[BEST_PC]), begin + state[BEST] - 1
                keep = base + high - begin
                for at in range(row - begin):
                    labels[base + at] = labels[keep + at]
                    if has_sets:
                        push_row(path, conditions, labels[base + at] >> 1, begin + at)
                phase = CHOSEN
            else:
                if shows_unmatched and begin >= covered:
                    slot = state[FOUND]
                    matches.start[slot] = begin
                    matches.length[slot] = 0
                    matches.number[slot] = -1
                    state[FOUND] = slot + 1
                    state[UNMATCHED] += 1
                if has_limit and words:
                    clear_marks(memory, words, begin + part, state[FARTHEST] + part + 1)
                begin += 1
                phase = SEARCH

    state[PHASE], state[PARTITION], state[BEGIN], state[NUMBER] = phase, part, begin, number
    state[COVERED], state[PC], state[ROW] = covered, pc, row
    state[DEPTH], state[TRAIL], state[STEPS], state[LABELS] = depth, trail, steps, base
    state[CHARGED], state[BOUND_FROM], state[BOUND_TO] = charged, bound_from, bound_to
    return stop


@jit
def limit_of(rows: KernelRows, part: int, begin: int) -> Any:
    """The position after the last row that a match from `begin` may have; one more than the end of
    the partition if rows that are allowed may still arrive."""
    if rows.limit.shape[0]:
        return rows.limit[begin]
    return rows.end[part] + rows.parts[part, IS_OPEN]


@jit
def skip_target(skip: int, rows: KernelRows, labels: Any, base: int, length: int) -> int:
    """Where AFTER MATCH SKIP continues, in rows from the first of the match; -1: nowhere."""
    if skip == PAST_LAST:
        return length
    if skip == NEXT_ROW:
        return 1
    if skip == TO_FIRST:
        for place in range(length):
            if rows.skip_to[labels[base + place] >> 1]:
                return place
        return -1
    for place in range(length - 1, -1, -1):
        if rows.skip_to[labels[base + place] >> 1]:
            return place
    return -1


# ---- marks and fingerprints --------------------------------------------------------------------


@jit
def path_fingerprint(
    memory: KernelMemo,
    which: Any,
    conditions: KernelConditions,
    path: KernelPath,
    labels: Any,
    base: Any,
    begin: Any,
    row: Any,
    edges: Any,
    numbers: Any,
    epoch: Any,
) -> Any:
    """64 bits mixed of everything that is read ahead of a path whose last row is the one before
    `row`. Paths that agree in it have the same future.

    0 if 64 bits cannot hold a value: two such paths may look alike here and differ for Python.
    """
    state = mix_bits(np.uint64(which + 1), np.uint64(epoch))
    for key in range(memory.keys[which], memory.keys[which + 1]):
        kind, read = memory.key[key, 0], memory.key[key, 1]
        if kind == r.KEY_MATCH_NUMBER:
            state = mix_bits(state, np.uint64(numbers[0]))
        elif kind == r.KEY_LIMIT:
            state = mix_bits(state, np.uint64(numbers[1]))
        elif kind == r.KEY_FOLD:
            size = path.sizes[path.folds[read, 1]]
            if path.counts[read, size] < 0:
                return np.uint64(0)
            state = mix_bits(state, np.uint64(path.counts[read, size]))
            fold = path.folds[read, 0]
            if fold == r.SPREAD:
                words = path.floats.view(np.uint64)
                state = mix_bits(state, words[path.folds[read, 3], size])
                state = mix_bits(state, words[path.folds[read, 3] + 1, size])
            elif fold in (r.SUM_FLOAT, r.LEAST_FLOAT, r.MOST_FLOAT):
                state = mix_bits(state, path.floats.view(np.uint64)[path.folds[read, 3], size])
            elif fold != r.COUNTED:
                state = mix_bits(state, np.uint64(path.ints[path.folds[read, 3], size]))
        else:
            found = find_anchor_row(memory.key[:, 2:], key, path, begin, row - 1)
            if found < 0:
                # The number of rows so far decides which row becomes the n-th.
                which_set = memory.key[key, 3]
                size = row - begin if which_set < 0 else path.sizes[which_set]
                state = mix_bits(state, np.uint64(0xABCD))
                if kind in (r.KEY_FIRST, r.KEY_FIRST_LABEL):
                    state = mix_bits(state, np.uint64(size))
            elif kind in (r.KEY_LAST_LABEL, r.KEY_FIRST_LABEL):
                state = mix_bits(state, np.uint64(labels[base + found - begin] >> 1))
            else:
                found += memory.key[key, 5]
                column = memory.key[key, 6]
                if found < edges[0] or found >= edges[1]:
                    state = mix_bits(state, np.uint64(0xDCBA))
                elif memory.key[key, 7]:
                    state = mix_bits(state, np.uint64(conditions.float_flags[column, found]))
                    state = mix_bits(state, conditions.float_columns.view(np.uint64)[column, found])
                else:
                    if conditions.int_flags[column, found] == r.UNFIT:
                        return np.uint64(0)
                    state = mix_bits(state, np.uint64(conditions.int_flags[column, found]))
                    state = mix_bits(state, np.uint64(conditions.int_columns[column, found]))
    return state


@jit
def mix_bits(state: Any, value: Any) -> Any:
    """Mixes another 64 bits into a state; each input bit affects every bit."""
    state = (state ^ value) * np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(29)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    return state ^ (state >> np.uint64(32))


@jit
def clear_marks(memory: KernelMemo, words: Any, low: Any, high: Any) -> None:
    """Clears the marks of rows [low, high)."""
    mark_rows = memory.marks.shape[0] // words
    if high - low >= mark_rows:
        memory.marks[:] = 0
        return
    for row in range(low, high):
        place = (row % mark_rows) * words
        for word in range(place, place + words):
            memory.marks[word] = 0
