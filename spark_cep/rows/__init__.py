"""Row patterns (MATCH_RECOGNIZE): from PATTERN, DEFINE and MEASURES to a compiled pattern."""
