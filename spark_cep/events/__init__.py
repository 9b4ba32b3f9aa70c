"""Event patterns: from a pattern and the schema of its input to a compiled query.

Begin in `compile`, whose result is in `compiled`. `branches` resolves OR and optional parts and
checks where a NOT may be; `classification` decides where each conjunct is tested: on a row by
Spark, between rows by the engine, or by Spark after it; `measures` compiles the columns of the
`answer`. The pattern as users write it is `spark_cep.pattern`.
"""
