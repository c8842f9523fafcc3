"""Callers who have a token of an OpenID Connect issuer, such as Keycloak, Entra ID, Google or Dex."""
