"""environments of dagrl."""
