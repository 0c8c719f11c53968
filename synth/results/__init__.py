"""See DESIGN: the results room."""
