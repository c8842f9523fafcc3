"""The brokers behind the proxy: where they are, who leads what, and the connections to them."""
