"""SQL and SASE front ends."""
