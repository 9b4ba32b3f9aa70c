"""Row patterns with gaps, matched by joins instead of row by row."""
