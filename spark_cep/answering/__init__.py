"""From the engine's rows to the answer, and what was counted on the way."""
