"""Every use of Spark: reading, typing, shuffling, running the engine, building the answer."""
