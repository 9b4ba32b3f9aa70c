"""The engine of event patterns: partial matches as columns, extended by any plan.

Begin in `engine`, one advance over the rows of a bucket: `table` sorts them, `context` says which
matches are due. Under skip till any match `branch_matcher` matches one branch of a pattern, `walk`
extends partial matches in blocks along `routes`, and `candidates` finds the rows that fit.
`runs` is the engine of skip till next match and strict. `negation` tests NOT, `adaptive` changes
plans between chunks, `remote_needs` holds what waits for remote data, `state` is what an advance
leaves to the next one, and `answer` makes the rows that go back.
"""
