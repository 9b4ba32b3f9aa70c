"""The command line: `spark-cep demo`, `run`, `explain` and `bench`.

`command` parses arguments and gives exit codes, `demo` generates data and runs a pattern in each
language, `statements` runs and explains SQL over files.
"""
