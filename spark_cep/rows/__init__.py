"""Row patterns (MATCH_RECOGNIZE): from PATTERN, DEFINE and MEASURES to a compiled pattern.

Begin in `compile`, whose result is in `compiled`. `calls` reads navigation, RUNNING and FINAL;
`conditions`, `conjuncts`, `leaves` and `texts` decide which part of DEFINE Spark computes as a
column and which the matcher tests; `measures` and `lookups` do the same for the answer and for
remote data; `earlier` lets a measure use those before it. `windows` is about patterns in window
frames. The matcher itself is `udfs.rows`.
"""
