"""Evaluation of expressions over numpy columns, with Spark's meaning.

`evaluate` walks an expression, `operators` and `calls` compute it, `folds` aggregates lists,
`vectors`, `codes` and `arrow_values` are the columns, and `tally` counts what was evaluated.
"""
