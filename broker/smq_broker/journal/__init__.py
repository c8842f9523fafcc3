"""The journal: files on local disk that keep the tails of Replicated segments beyond the end of the process."""
