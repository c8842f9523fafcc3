"""The commands of `smq`, one module per noun or verb of the command line."""
