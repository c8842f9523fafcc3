"""A package, so that the processes which its tests share end with the last of them."""
