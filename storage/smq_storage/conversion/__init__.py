"""Values of programs as the exact values of columns, or an error: no value changes."""
