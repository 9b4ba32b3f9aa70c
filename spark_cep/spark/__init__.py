"""Every use of Spark: reading, typing, shuffling, running the engine, building the answer.

Begin in `query`, what a runner needs of a pattern; `event_query` and `row_query` are the two kinds,
`batch` and `stream` the two runners. On the way `source` reads the input, `typing` asks Spark for
types, `keys` makes keys comparable, `carriers` carries types that Python cannot hold, `prepare`
adds masks and distributes rows to buckets, `entry` and `processor` are what Spark calls in a
worker, and `projection` makes the columns of the answer. `lookups` and `shedding` add remote data
and load shedding, for which `shedding_sample` reads rows, chosen by `row_hashes`. `report`, with
`remote_report` and `shedding_report`, gathers what `explain` shows, and `metrics` what was counted.
`versions` has what differs between versions of Spark.
"""

from importlib.util import find_spec

from spark_cep.udfs.errors import CepError

if find_spec("pyspark") is None:
    raise CepError(
        "spark-cep needs PySpark, and there is none in this Python",
        hint="use the Python of a platform that has Spark, or pip install 'spark-cep[spark]'; "
        "'spark-cep[client]' for Spark Connect without a Spark of its own",
    )
