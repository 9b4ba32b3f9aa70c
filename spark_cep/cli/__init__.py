"""The command line: `spark-cep demo`, `run` and `explain`.

`command` parses arguments and gives exit codes, `demo` generates data and runs a pattern in each
language, `statements` runs and explains SQL over files.
"""
