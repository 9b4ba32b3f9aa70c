"""What was decided, told: as text, data, a page with a drawing, and beside what was measured."""
