"""What Spark calls in a worker: one bucket of a batch, one trigger of a stream.

Begin in `engine`, the protocol of both engines; `event_engine` and `row_engine` implement it.
`worker` runs a bucket, in parts where its rows do not fit (`memory`, `spilling`); `trigger` runs
one trigger of a bucket, with `shedding` in front. `job` holds what the workers of one query know
and turns rows into blobs and back; `state` is the header of a bucket's state and its store,
`segments` the rows in it.
"""
