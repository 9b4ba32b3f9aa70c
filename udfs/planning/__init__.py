"""Plans from statistics: cost models, plan generation, invariants, adaptation."""
