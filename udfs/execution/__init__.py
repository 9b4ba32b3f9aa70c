"""What Spark calls in a worker: one bucket of a batch, one trigger of a stream.

`worker` and `row_worker` run a bucket, `trigger` one trigger of a bucket. `state` reads and writes
the state of a stream in segments, `packing` turns rows into blobs and back, and `job` holds what
the workers of one query know.
"""
