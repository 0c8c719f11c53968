"""See DESIGN: the matches room."""
