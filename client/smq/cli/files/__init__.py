"""File formats of `smq publish` and `smq consume`: how messages are read from files and written to them."""
