"""Row patterns (MATCH_RECOGNIZE): a program, one compiled matcher, values of the matched rows."""
