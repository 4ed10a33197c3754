"""report of dagrl."""
