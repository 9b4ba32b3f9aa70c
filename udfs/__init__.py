"""The worker's room: the engine over Arrow columns.

Nothing here imports pyspark or the driver's code, so all of it can be tested, profiled and
read without Spark.
"""
