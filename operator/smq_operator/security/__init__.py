"""Who may do what in a release: the certificate authority, tokens, and rights."""
