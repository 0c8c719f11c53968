"""See DESIGN: the diagnosis room."""
