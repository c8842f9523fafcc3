"""Who is connected, and what a caller may do: names in certificates, rights on topics, grants."""
