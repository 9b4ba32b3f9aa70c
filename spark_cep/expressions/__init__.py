"""Spark SQL in patterns: parsed, named, typed, and translated for the engine.

`syntax` parses a text and keeps its places, `names` resolves names to variables and columns,
`conditions` splits texts into conjuncts, `types`, `operands` and `translation` make expressions
that the engine computes exactly as Spark does, under the `guards` of their branches. `refusals`
lists what no condition may contain, `problems` turns several mistakes into one error. `orders` and
`windows` read ORDER BY and WITHIN, `quantifiers` and `byte_sizes` what their names say;
`row_grammar` and `row_variables` read the PATTERN of row patterns. `remote_calls` and `lookups`
are about remote data, `shipment` holds the columns that go to the engine, `schema` what compiling
knows of the input. Event patterns and row patterns both build on this folder, and it on neither.
"""
