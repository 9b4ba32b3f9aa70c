"""Row patterns with gaps, matched by joining single rows instead of walking row by row."""
