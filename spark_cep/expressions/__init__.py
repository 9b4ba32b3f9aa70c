"""Spark SQL expressions in patterns: parsed, named, typed, and translated for the engine."""
