"""Skip till next match and strict: runs over the rows, all in lockstep."""
