"""Remote sources of a query: what was given, and which strategy and cache each source gets.

`spark_cep.remote` has what users write, `spark_cep.spark.lookups` joins and collects tables, and
`udfs.remotes` fetches in the workers.
"""
