"""Data: reading rows (`rows`), rendering them as text (`render`), arrays (`encode`) and order (`order`)."""
