"""See DESIGN: the depth room."""
