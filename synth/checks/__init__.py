"""See DESIGN: the checks room."""
