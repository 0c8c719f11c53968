"""See DESIGN: the masks room."""
