"""From the engine's rows to the answer, and what can be asked of it: explain, metrics."""
