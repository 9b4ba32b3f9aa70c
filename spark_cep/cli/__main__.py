"""`python -m spark_cep.cli`."""

import sys

from spark_cep.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
