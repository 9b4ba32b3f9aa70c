"""SASE text, the language of the CEP papers, becomes an event pattern.

Begin in `query`, which has `sase`. `lexer` makes tokens, `parser` makes the trees of `nodes`,
`names` knows symbols and functions, `resolver` turns PATTERN and WITHIN into a pattern, and
`writer` turns WHERE into Spark SQL.
"""
