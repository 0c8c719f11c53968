"""See DESIGN: the guard room."""
