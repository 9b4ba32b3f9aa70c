"""How it is run: a look at a sample where something hangs on it, then the choice of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from spark_cep.planning.choice import Choice, Facts, choose
from spark_cep.planning.forced import check_wish
from spark_cep.planning.given import check_statistics, with_statistics
from spark_cep.planning.sample import (
    ROWS,
    SAMPLE,
    NoSample,
    Sample,
    is_wanted,
    look,
    needed,
)
from spark_cep.remotes.before import asked_of
from spark_cep.shipping import prepare
from spark_cep.udfs.program import Adaptation, Plan, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from spark_cep.compiling.compiled import Compiled
    from spark_cep.options import Asked, Options
    from spark_cep.shipped import Shipping
    from spark_cep.shipping.source import Source


def check_wishes(asked: Asked, compiled: Compiled) -> None:
    """What the user says of plans and data has to be about this pattern."""
    options = asked.options
    if options.statistics is not None:
        check_statistics(options.statistics, compiled.variables)
    check_wish(options.wish, compiled.variables, compiled.branches)


def planned(
    source: Source, masked: DataFrame, shipping: Shipping, asked: Asked
) -> tuple[Program, Choice, Sample | None]:
    """The program with its plan, why it has that one, and the sample if one was taken. `masked`:
    the input with the candidate mask."""
    options, compiled = asked.options, shipping.compiled
    program = program_of(asked, shipping)
    found = _sampled(source, masked, shipping, program, asked)
    facts = _facts(asked, compiled, found)
    choice = choose(replace(facts, in_batch=not source.is_streaming))
    program = replace(
        program,
        plan=choice.plan,
        adaptation=_adaptation(options, choice, is_streaming=source.is_streaming),
        estimates=choice.estimates,
        costs=choice.costs,
    )
    return program, choice, found if isinstance(found, Sample) else None


def _adaptation(options: Options, choice: Choice, *, is_streaming: bool) -> Adaptation:
    if not choice.adapts:
        return Adaptation()
    is_auto = options.wish.kind == "auto" and options.adaptation.kind != "off"
    return replace(options.adaptation, to_tree=is_auto, to_hybrid=is_auto and is_streaming)


def _sampled(
    source: Source, masked: DataFrame, shipping: Shipping, program: Program, asked: Asked
) -> Sample | NoSample:
    """Only if something hangs on it: the plan is open and the user gave no rates."""
    options, compiled = asked.options, shipping.compiled
    has_rates = options.statistics is not None and options.statistics.rates
    if has_rates or not options.wish.is_open or compiled.strategy != "any":
        return NoSample()
    if source.is_streaming:
        return NoSample("no sample of a stream: each bucket plans from what it has seen")
    if not is_wanted(source.setting(SAMPLE)):
        return NoSample(f"no sample, for {SAMPLE} is off")
    places = needed(program)
    shipped = [shipping.shipment.shipped[place].expression for place in places]
    said = (shipped, compiled.masks, compiled.window, compiled.conditions, compiled.branches)
    # What a remote source is cannot be compared either.
    known = not (_has_columns(shipped, compiled) or compiled.lookups or compiled.remotes)
    # Of rows that were shed a sample is one of what is left.
    known = known and options.shed is None
    key = repr(said) if known else None
    return look(
        source.df, key, lambda: prepare.some(masked.limit(ROWS), shipping.shipment, places), program
    )


def _has_columns(shipped: Sequence[str | Column], compiled: Compiled) -> bool:
    """A Column says nothing of itself that could be compared."""
    masks = [text for texts in compiled.masks for text in texts]
    return not all(isinstance(each, str) for each in (*shipped, *masks))


def _facts(asked: Asked, compiled: Compiled, sample: Sample | NoSample) -> Facts:
    statistics = asked.options.statistics
    facts = Facts(
        compiled.variables, compiled.strategy, asked.options.wish, compiled.branches,
        compiled.conditions,
    )  # fmt: skip
    if isinstance(sample, Sample):
        unit = "in all" if sample.complete else "a million rows"
        stay = "" if asked.options.shed is None else " that stay"
        source = f"{sample.source()}{stay}"
        facts = replace(facts, estimates=sample.estimates, source=source, unit=unit)
        if sample.estimates is None and sample.rows:
            facts = replace(facts, notes=(f"no variable accepts any of {source}",))
    elif sample.reason:
        facts = replace(facts, notes=(sample.reason,))
    return facts if statistics is None else with_statistics(facts, statistics)


def program_of(asked: Asked, shipping: Shipping) -> Program:
    """All but how it is run."""
    compiled = shipping.compiled
    return Program(
        columns=shipping.shipment.names(),
        keys=shipping.key_columns,
        orders=shipping.orders,
        mask=shipping.mask,
        variables=compiled.variables,
        conditions=compiled.conditions,
        tree=compiled.tree,
        branches=compiled.branches,
        plan=Plan("eager"),
        window=compiled.window,
        strategy=compiled.strategy,
        consumption=compiled.consumption,
        limits=asked.options.limits,
        ansi=shipping.ansi,
        remotes=tuple(each.remote for each in asked_of(compiled, shipping.sources)),
    )
