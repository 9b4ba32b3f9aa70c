"""What Spark says about the types of texts over one input row, asked for once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spark_cep.compiling.names import quoted

if TYPE_CHECKING:
    from spark_cep.compiling.compiled import ColumnInfo, Typer
    from spark_cep.udfs.expressions import Type


class Types:
    def __init__(self, typer: Typer, columns: Iterable[ColumnInfo]) -> None:
        self._typer = typer
        self._known: dict[str, Type | str] = {quoted(each.name): each.type for each in columns}

    def learn(self, texts: Iterable[str]) -> None:
        """Asks for many at once, which costs as much as asking for one."""
        asked = list(dict.fromkeys(text for text in texts if text not in self._known))
        if asked:
            self._known.update(zip(asked, self._typer.of_row(asked), strict=True))

    def of(self, text: str) -> Type | str:
        """The type, or a sentence about what is wrong with the text."""
        self.learn([text])
        return self._known[text]
