"""What the library says of Python's options, in the words of SQL.

Most messages speak of variables and columns and mean the same in both languages. Those that name
an option, or show what to write, are told here as a statement has it. Texts that nobody lists stay
as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_EVENT_ROWS = "ONE ROW PER MATCH and ALL ROWS PER MATCH"
# In the order in which they are tried: longer phrases stand before what they contain.
_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r'order_by="ts", or several columns: order_by=\["ts", "id DESC"\]',
     "write ORDER BY ts, or ORDER BY ts, id DESC"),
    (r'order_by=\["ts", "(.*?)"\]', r"ORDER BY ts, \1"),
    (r"\border_by\b", "ORDER BY"),
    (r"\bpartition_by\b", "PARTITION BY"),
    (r"\bafter_match cannot be read", "this AFTER MATCH SKIP cannot be read"),
    (r"\bafter_match names", "AFTER MATCH SKIP names"),
    (r'ask for rows="all" \((.*)\)', r"write \1"),
    (r'measures=\{"last": "LAST\(b\.price\)"\}, or ask for rows="all"',
     "MEASURES LAST(b.price) AS last, or write ALL ROWS PER MATCH"),
    (r'rows="one" and rows="all"', _EVENT_ROWS),
    (r"rows='all omit empty'", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"),
    (r"rows='all with unmatched'", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"),
    (r'rows="all" shows the input\'s rows, and has no place for measures',
     "ALL ROWS PER MATCH shows the input's rows, and has no place for MEASURES"),
    (r'\.within\("10 minutes"\)', "WITHIN INTERVAL '10' MINUTES"),
    (r"\.?\bwithin\((\d[\d.]*)\)", r"WITHIN \1"),
    (r"write '(\S+) seconds'", r"write INTERVAL '\1' SECONDS"),
    (r"write days: '(\d+) days'", r"write days: INTERVAL '\1' DAYS"),
    (r'\bplan="([\w-]+)"', r"plan('\1')"),
    (r"\b(?:that )?(plan|adapt|statistics)= is ", r"the hint \1(...) is "),
    (r", or an object: cep\.plans\..*", ""),
    (r'shed=cep\.Shed\(keep=0\.3\), cep\.Shed\(latency="(.*?)"\) or .*',
     r"shed(keep => 0.3), shed(latency => '\1') or shed(rows_per_second => 100000)"),
    (r'cep\.Shed\((\w+)="(.*?)"\)', r"shed(\1 => '\2')"),
    (r"cep\.Shed\((\w+)=([\d._]+)\)",
     lambda found: f"shed({found[1]} => {found[2].replace('_', '')})"),
    (r"cep\.Shed takes", "shed takes"),
    (r", or leave shed= out", ""),
    (r"\bshed= ", "the hint shed(...) "),
    (r'\.strategy\("skip till any match"\)', "SKIP TILL ANY MATCH"),
    (r"cep\.Limits\((\w+)=1_000_000\), or None for no limit", r"/*+ \1(1000000) */"),
    (r"limits=cep\.Limits\((\w+)=([\d_]+)\)",
     lambda found: f"/*+ {found[1]}({int(found[2])}) */"),
    (r"before matching: df\.withColumn\('x', F\.expr\('(.*?)'\)\)",
     r"in a subquery: FROM (SELECT *, \1 AS x FROM t) MATCH_RECOGNIZE (...)"),
    (r"before matching: df\.withColumnRenamed\(.*?\)", "in a subquery in front of MATCH_RECOGNIZE"),
    (r"rename the input's: df\.withColumnRenamed\(.*?\)", "rename the input's in a subquery"),
    (r"a bare column stands only in event\(name, condition\), where it is that event's own",
     "a bare column stands in DEFINE, where it is the variable's own"),
)  # fmt: skip
_RULES = tuple((re.compile(phrase, re.S), said) for phrase, said in _PHRASES)


def in_sql(text: str) -> str:
    """A message or a hint for somebody who wrote SQL.

    >>> in_sql("order_by: the input has no column tz")
    'ORDER BY: the input has no column tz'
    >>> in_sql("write the window in the column's own unit, as a number: within(10)")
    "write the window in the column's own unit, as a number: WITHIN 10"
    """
    for phrase, said in _RULES:
        text = phrase.sub(said, text)
    return text
