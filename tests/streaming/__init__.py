"""A stream without Spark: triggers of one bucket against the answer over all rows at once."""
