"""What the fresh processes of a check do."""
