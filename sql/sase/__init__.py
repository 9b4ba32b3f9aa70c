"""The papers' language: SASE text becomes an event pattern."""
