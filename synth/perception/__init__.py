"""See DESIGN: the perception room."""
