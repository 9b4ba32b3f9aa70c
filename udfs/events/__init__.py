"""The engine of event patterns: partial matches as columns, extended by any plan.

Begin in `engine`, one advance over the rows of a bucket: `table` sorts them, `context` says which
matches are due. Under skip till any match `branch_matcher` matches one branch of a pattern, whose
`steps` say what each next slot has to meet: `walk` extends `partials` in blocks along `routes`, and
`candidates` finds the rows that fit. `runs`, on the states of `automaton`, is the engine of skip
till next match and strict. `negation` tests NOT; `remote_needs` says which remote data is needed,
and `postponed` holds what waits for it. `answer` makes the rows that go back. `chunks` cuts a
bucket, `adaptive` changes plans between the chunks, from `sampling` and `bucket_plans`; `metrics`
counts and holds the limits.
"""
