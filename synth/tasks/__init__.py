"""See DESIGN: the tasks room."""
