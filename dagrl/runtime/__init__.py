"""runtime of dagrl."""
