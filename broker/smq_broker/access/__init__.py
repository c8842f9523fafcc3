"""Who is connected, and what it may do: logins, certificates, grants, and the checks of each call."""
