"""Spark SQL in patterns: parsed, named, typed, and translated for the engine.

`syntax` parses a text and keeps its places, `names` resolves names to variables and columns,
`conditions` splits texts into conjuncts, `types` and `translation` make expressions that the engine
computes exactly as Spark does, `refusals` lists what no condition may contain, and `problems`
turns several mistakes into one error. `orders` and `windows` read ORDER BY and WITHIN;
`row_grammar` and `row_variables` read the PATTERN of row patterns. Event patterns and row patterns
both build on this folder, and it on neither.
"""
