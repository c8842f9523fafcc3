"""How a client of a secure release proves who it is, and what it may do: token, certificate, grants."""
