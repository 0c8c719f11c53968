"""See DESIGN: the report room."""
