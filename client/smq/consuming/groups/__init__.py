"""What makes a consumer a member of a group."""
