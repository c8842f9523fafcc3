"""A package, so that those inside have their own names: `operator` alone would hide a module of Python."""
