"""Load shedding on the driver: what is asked, which rows stay, and the column that says so."""
