"""Row patterns with gaps, matched by joins instead of row by row.

`pattern` recognizes such patterns, `matches` joins their points with the engine of event patterns,
`candidates` gives the rows a point may be, and `preferred` keeps the order of the pattern text.
"""
