"""The command line: `spark-cep demo`, `run`, `explain` and `bench`."""
