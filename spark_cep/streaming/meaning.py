"""What the state of a stream is compared with: the pattern down to the texts that Spark evaluates.

A program knows the shipped columns by their places only, and conditions on one variable as bits of
a mask. What these are is in no program, but matches in a checkpoint mean nothing without it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_cep.shipping.shipment import Shipment


def meaning(program: str, shipment: Shipment, masks: Sequence[Sequence[str | Column]] = ()) -> str:
    """A fingerprint. `program`: that of the program; `masks`: the conditions of each variable."""
    texts = [
        [each.role, _text(each.text()), each.guards and sorted(each.guards)]
        for each in shipment.shipped
    ]
    conditions = [[_text(each) for each in condition] for condition in masks]
    return hashlib.sha256(json.dumps([program, texts, conditions]).encode()).hexdigest()


def _text(expression: str | Column) -> str:
    """Spark numbers the variables of lambda functions as they are made."""
    text = str(expression)
    return re.sub(r"_\d+\b", "", text) if "lambda" in text else text
