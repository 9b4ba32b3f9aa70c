"""Evaluation plans from statistics: cost model, plan generation, invariants, adaptation."""
