"""See DESIGN: the audit room."""
