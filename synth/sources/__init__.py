"""See DESIGN: the sources room."""
