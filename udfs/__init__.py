"""The engine, which runs in the Python workers and does not import pyspark.

`program`, `row_program`, `expressions` and `remote_spec` are what the driver ships, `output` is
what goes back, and `canonical` names a query in a checkpoint. Spark calls `execution`, which runs
`events` or `rows`; both evaluate expressions with `values` and look up remote data with `remotes`.
"""
