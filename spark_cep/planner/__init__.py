"""Decisions that are made before a query runs: plan, matcher, buckets, time slices.

`choice` is the ladder of reasons that ends in a plan, `named_plans` reads plans that name
variables, `sample` and `statistics` are what the choice is made from, `matcher` chooses how a row
pattern is matched, and `layout` how many buckets and slices there are. Cost models and generation
of plans, which workers use too, are in `udfs.planning`.
"""
