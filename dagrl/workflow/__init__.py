"""workflow of dagrl."""
