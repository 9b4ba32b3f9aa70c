"""What `explain` shows: facts of a plan as text, JSON, a page and a drawing."""
