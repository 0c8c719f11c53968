"""See DESIGN: the exports room."""
