"""Topics, segments, layouts and the hash ring: the frozen values that everything else works on."""
