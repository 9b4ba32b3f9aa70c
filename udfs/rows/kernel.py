"""The matcher: one compiled function that runs any program over all partitions of a bucket.

It tries the ways of a pattern depth first, in the order of preference, so the first match found
is the preferred one. Whatever it needs to go on stands in arrays: it can stop anywhere, for a
full output, a full stack or a question that only Python can answer, and be called again.

A search that comes to an instruction at a row where one has been before cannot do better than
that one, which failed or it would have ended the search. So places are marked on arrival, and the
marks on the way to a match are taken back when it is found. That is sound where nothing ahead
reads the path (`marks`, one bit each, good for all searches of a partition), and else among paths
that agree in all that is read ahead (`merged`, a table of bounded size that forgets).

The end of a partition that is open is not its end. A search that asks for a row there, or whose
conditions or measures look behind it, is not decided: it is left as it was, and the partition with
it, for it says where the next search begins. Of what is not decided nothing is shown.

Everything is compiled with the same types for all programs: once per installation, and kept on
disk.
"""

# ruff: noqa: PLR0912, PLR0913, PLR0915, PLR0917 - a compiled loop pays for calls and tuples

from __future__ import annotations

from typing import Any

import numpy as np

from spark_cep.udfs.rows import opcodes as o
from spark_cep.udfs.rows.flatten import CHAR, END, MATCH, SPLIT, START
from spark_cep.udfs.rows.interpreter import holds
from spark_cep.udfs.rows.jit import jit
from spark_cep.udfs.rows.merging import fingerprint, forget, mixed
from spark_cep.udfs.rows.records import (
    ANSWER,
    ANSWERED,
    BEGIN,
    COVERED,
    DEEP,
    DONE,
    EMPTY,
    EPOCH,
    ERRORS,
    FARTHEST,
    FORGOTTEN,
    FOUND,
    FULL,
    GO_ON,
    HAS_FIRST,
    HITS,
    IS_OPEN,
    LABELS,
    MATCHES,
    MERGING,
    NEXT,
    NEXT_COVERED,
    NEXT_NUMBER,
    NEXT_ROW,
    NOT_YET,
    NUMBER,
    PARTITION,
    PAST_LAST,
    PC,
    PHASE,
    QUESTION,
    ROW,
    SEARCH,
    SKIPS_IN_PLACE,
    SKIPS_NOWHERE,
    STEPS,
    STEPS_BEFORE,
    TO_FIRST,
    TOO_MANY_STEPS,
    TRAIL,
    UNMATCHED,
    WAYS,
    YES,
    Conditions,
    Found,
    Instructions,
    Memory,
    Path,
    Rows,
    Ways,
)  # fmt: skip
from spark_cep.udfs.rows.walking import pop, push

ENDS = np.uint64(1 << 63)
ANY = np.uint64((1 << 64) - 1)
MANY = 62  # this bit stands for all variables from here on


@jit
def limit_of(rows: Rows, part: int, begin: int) -> Any:
    """The row behind the last that a match from `begin` may have, one more than the partition's
    end if that may still come."""
    if rows.limit.shape[0]:
        return rows.limit[begin]
    return rows.end[part] + rows.parts[part, IS_OPEN]


@jit
def skipped_to(skip: int, rows: Rows, labels: Any, base: int, length: int) -> int:
    """Where AFTER MATCH SKIP goes, in rows from the first of the match; -1: nowhere."""
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


@jit
def search(
    program: Instructions,
    rows: Rows,
    conditions: Conditions,
    path: Path,
    memory: Memory,
    ways: Ways,
    found: Found,
    state: Any,
) -> int:
    """Goes on until the last partition is done, or until something is needed."""
    entry, skip, shows_unmatched = program.settings[0], program.settings[1], program.settings[2]
    measured, most_steps, words = program.settings[3], program.settings[4], program.settings[5]
    merge_from = program.settings[6]
    op, first, second, need = program.op, program.first, program.second, program.need
    places, label_of, may = program.place, program.label, rows.may
    has_limit = rows.limit.shape[0] > 0
    has_sets = path.sizes.shape[0] > 0
    room = memory.marks.shape[0] // words if words else np.int64(0)
    keeps_all = room >= may.shape[0] + rows.begin.shape[0]
    merge_mask = memory.merged.shape[0] // 2 - 1
    part, begin, number = state[PARTITION], state[BEGIN], state[NUMBER]
    covered, pc, row = state[COVERED], state[PC], state[ROW]
    depth, trail, steps = state[WAYS], state[TRAIL], state[STEPS]
    base = state[LABELS]
    labels = found.labels
    phase = state[PHASE]
    stop = -1
    waits = False
    low, high, limit, last = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    is_open = False
    # What can come at `last`: no row, or any that has not come yet.
    last_word = ENDS
    if 0 <= part < rows.begin.shape[0]:
        low, high = rows.begin[part], rows.end[part]
        is_open = rows.parts[part, IS_OPEN] != 0
        if phase != SEARCH:
            limit = limit_of(rows, part, begin)
            last, last_word = min(limit, high), ANY if limit > high else ENDS
    word = np.uint64(0)
    if phase != SEARCH:
        word = may[row] | ENDS if row < last else last_word

    while True:
        if phase == SEARCH:
            if part >= rows.begin.shape[0]:
                stop = DONE
                break
            if begin >= high:
                if part >= 0 and not waits:
                    rows.parts[part, NEXT] = begin
                    rows.parts[part, NEXT_COVERED] = covered
                    rows.parts[part, NEXT_NUMBER] = number
                waits = False
                part += 1
                if part < rows.begin.shape[0]:
                    low, high = rows.begin[part], rows.end[part]
                    begin, covered = rows.parts[part, NEXT], rows.parts[part, NEXT_COVERED]
                    number = rows.parts[part, NEXT_NUMBER]
                    is_open = rows.parts[part, IS_OPEN] != 0
                    state[STEPS_BEFORE] = steps
                    state[MERGING] = 0
                continue
            # Searches that cannot begin are not begun.
            while begin < high and not ((may[begin] | ENDS) & need[entry]):
                if shows_unmatched and begin >= covered:
                    break
                begin += 1
            if begin >= high:
                continue
            if state[FOUND] >= found.start.shape[0] or base + (high - begin) > labels.shape[0]:
                stop = FULL
                break
            if words and not keeps_all and begin + part > state[FORGOTTEN]:
                forget(memory, words, state[FORGOTTEN], begin + part)
                state[FORGOTTEN] = begin + part
            limit = limit_of(rows, part, begin)
            last, last_word = min(limit, high), ANY if limit > high else ENDS
            pc, row, depth, trail = np.int64(entry), begin, np.int64(0), np.int64(0)
            word = may[row] | ENDS
            state[FARTHEST] = row
            phase = GO_ON

        # One instruction.
        verdict = True
        is_match = False
        if phase == ANSWERED:
            phase = GO_ON
            verdict = state[ANSWER] == YES
            waits = state[ANSWER] == NOT_YET
            if op[pc] == MATCH:
                is_match = verdict
            elif verdict:
                pc = np.int64(first[pc])
                row += 1
                word = may[row] | ENDS if row < last else last_word
            else:
                pop(path, label_of[pc] >> 1, row)
        else:
            if depth >= ways.pc.shape[0] or trail >= ways.marked.shape[0]:
                stop = DEEP
                break
            steps += 1
            if not word & need[pc]:
                verdict = False
            else:
                place = places[pc]
                if place >= 0:
                    if row - begin < room:
                        # A partition has a place behind its last row.
                        slot = row + part if keeps_all else (row + part) % room
                        at = slot * words + (place >> 6)
                        bit = np.uint64(1) << np.uint64(place & 63)
                        if memory.marks[at] & bit:
                            verdict = False
                            state[HITS] += 1
                        else:
                            memory.marks[at] |= bit
                            ways.marked[trail] = (at << 6) | (place & 63)
                            trail += 1
                elif place < -1 and state[MERGING]:
                    mix = fingerprint(
                        memory, -2 - place, conditions, path, labels, base, begin, row,
                        (low, high), (number, limit), state[EPOCH],
                    )  # fmt: skip
                    here = (np.int64(pc) << 32) | (row + part)
                    at = np.int64(mixed(mix, np.uint64(here)) & np.uint64(merge_mask)) * 2
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
                        waits = True
                    elif variable >= MANY and not rows.more[variable - MANY, row]:
                        verdict = False
                    elif is_open and row + rows.reach[variable] >= high:
                        waits = True
                    else:
                        labels[base + row - begin] = label_of[pc]
                        if has_sets:
                            push(path, conditions, variable, row)
                        at = conditions.start[variable]
                        if at != -1:
                            answer = o.ASK
                            if at >= 0:
                                answer = holds(
                                    conditions, path, labels, base, at, begin, row,
                                    (low, high, is_open), number + 1,
                                )  # fmt: skip
                            if answer == o.ASK:
                                stop = QUESTION
                                break
                            if answer != o.TRUE:
                                verdict = False
                                waits = answer == o.BEYOND
                                if answer == o.ERROR:
                                    state[ERRORS] += 1
                                if has_sets:
                                    pop(path, variable, row)
                        if verdict:
                            pc = np.int64(first[pc])
                            row += 1
                            word = may[row] | ENDS if row < last else last_word
                elif what == SPLIT:
                    left, right = first[pc], second[pc]
                    if not word & need[left]:
                        pc = np.int64(right)
                    else:
                        if word & need[right]:
                            ways.pc[depth] = right
                            ways.row[depth] = row
                            ways.trail[depth] = trail
                            depth += 1
                        pc = np.int64(left)
                elif what == START:
                    verdict = row == low and rows.parts[part, HAS_FIRST] != 0
                    pc = np.int64(first[pc])
                elif what == END:
                    verdict = row == high
                    waits = verdict and is_open
                    pc = np.int64(first[pc])
                elif what == MATCH:
                    if is_open and begin < row and row - 1 + measured >= high:
                        stop = QUESTION
                        break
                    is_match = True
        state[FARTHEST] = max(state[FARTHEST], row)

        if waits:
            # Undecided: the partition is left where this search begins.
            if has_sets:
                for at in range(row - 1, begin - 1, -1):
                    pop(path, labels[base + at - begin] >> 1, at)
            rows.parts[part, NEXT] = begin
            rows.parts[part, NEXT_COVERED] = covered
            rows.parts[part, NEXT_NUMBER] = number
            begin = high
            phase = SEARCH
        elif is_match:
            phase = SEARCH
            while trail > 0:
                trail -= 1
                entry_ = ways.marked[trail]
                memory.marks[entry_ >> 6] &= ~(np.uint64(1) << np.uint64(entry_ & 63))
            if steps - state[STEPS_BEFORE] > most_steps:
                stop = TOO_MANY_STEPS
                break
            length = row - begin
            number += 1
            state[EPOCH] += 1
            target = np.int64(1)
            if length:
                target = np.int64(skipped_to(skip, rows, labels, base, length))
                if target <= 0:
                    stop = SKIPS_NOWHERE if target < 0 else SKIPS_IN_PLACE
                    break
            slot = state[FOUND]
            found.start[slot] = begin
            found.length[slot] = length
            found.number[slot] = number
            state[FOUND] = slot + 1
            state[MATCHES] += 1
            if length:
                covered = max(covered, row)
            else:
                state[EMPTY] += 1
            if has_sets:
                for at in range(row - 1, begin - 1, -1):
                    pop(path, labels[base + at - begin] >> 1, at)
            base += length
            begin += target
            if has_limit and words:
                forget(memory, words, found.start[slot] + part, state[FARTHEST] + part + 1)
        elif not verdict:
            taken = steps - state[STEPS_BEFORE]
            if taken > most_steps:
                stop = TOO_MANY_STEPS
                break
            if taken > merge_from * (1 + row - low):
                state[MERGING] = 1
            back = begin
            if depth:
                back = np.int64(ways.row[depth - 1])
            if has_sets:
                for at in range(row - 1, back - 1, -1):
                    pop(path, labels[base + at - begin] >> 1, at)
            if depth:
                depth -= 1
                pc, trail = np.int64(ways.pc[depth]), np.int64(ways.trail[depth])
                row = back
                word = may[row] | ENDS if row < last else last_word
            else:
                if shows_unmatched and begin >= covered:
                    slot = state[FOUND]
                    found.start[slot] = begin
                    found.length[slot] = 0
                    found.number[slot] = -1
                    state[FOUND] = slot + 1
                    state[UNMATCHED] += 1
                if has_limit and words:
                    forget(memory, words, begin + part, state[FARTHEST] + part + 1)
                begin += 1
                phase = SEARCH

    state[PHASE], state[PARTITION], state[BEGIN], state[NUMBER] = phase, part, begin, number
    state[COVERED], state[PC], state[ROW] = covered, pc, row
    state[WAYS], state[TRAIL], state[STEPS], state[LABELS] = depth, trail, steps, base
    return stop
