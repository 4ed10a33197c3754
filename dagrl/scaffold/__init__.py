"""What a user's own work starts from: the files that ship, copies of them, new projects from templates."""
