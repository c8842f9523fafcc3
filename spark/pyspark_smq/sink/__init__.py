"""The writers of the data source: every task stages its rows, and one commit publishes them."""
