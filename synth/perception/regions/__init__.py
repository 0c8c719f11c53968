"""See DESIGN: the regions room."""
