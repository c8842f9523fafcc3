"""References to uploads: what a primary checks before it appends one."""
