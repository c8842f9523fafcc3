"""A package, so that those inside have names of their own: `operator` alone would hide a module of Python."""
