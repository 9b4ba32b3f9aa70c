"""Every use of Spark: reading, typing, shuffling, running the engine, building the answer.

`event_query` and `row_query` take a compiled pattern through a batch, `stream` through a stream.
On the way `source` reads the input, `typing` asks Spark for types, `keys` makes keys comparable,
`prepare` adds masks and deals rows to buckets, `entry` and `processor` are what Spark calls in a
worker, and `projection` makes the columns of the answer. `lookups` and `shedding` add remote data
and load shedding; `report` and `metrics` are behind `explain` and `cep.metrics`.
"""
