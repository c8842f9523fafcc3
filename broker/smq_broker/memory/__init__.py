"""Memory budgets and credits, their accounting across threads, and the trimmer that returns freed memory."""
