"""See DESIGN: the tiny room."""
