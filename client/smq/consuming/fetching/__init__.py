"""Reads segments ahead: files from the filer, and the tail from a replica."""
