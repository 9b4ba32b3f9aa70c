"""Columns and values: Arrow to numpy, codes, and expressions with Spark's meaning."""
