"""`python -m spark_cep.cli`."""

import sys

from spark_cep.cli.command import main

sys.exit(main())
