"""The engine, which runs in the Python workers and does not import pyspark."""
