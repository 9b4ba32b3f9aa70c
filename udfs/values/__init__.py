"""Evaluation of expressions over numpy columns, with Spark's meaning."""
