"""Publishing by reference: rows go to the filer as Parquet files, and the brokers get references to these."""
