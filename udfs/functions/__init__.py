"""Spark's scalar functions over plain Python values, for conditions that relate rows of a match.

`registry.py` says what a function takes; the other modules have the functions, by the kind of their
first argument. `values/functions.py` applies them to vectors.
"""
