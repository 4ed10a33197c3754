"""backends of dagrl."""
