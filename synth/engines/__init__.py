"""See DESIGN: the engines room."""
