"""From the input DataFrame to the engine's rows: read, canonical keys, mask, filter, shuffle."""
