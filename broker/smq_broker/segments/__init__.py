"""The segments that this broker hosts: opening, flushing of chunks, sealing."""
