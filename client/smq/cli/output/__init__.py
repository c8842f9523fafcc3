"""How a command shows what it found."""
