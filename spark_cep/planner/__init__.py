"""Decisions that are made before a query runs: plan, matcher, buckets, time slices.

`choice` is the ladder of reasons that ends in a plan, `named_plans` reads plans that name
variables, `statistics` is what the choice is made from, sampled or given by the user. `matcher`
chooses how a row pattern is matched, and `layout` how many buckets and slices there are. Cost
models and the generation of plans, which workers use too, are in `udfs.planning`.
"""
