"""How the parts of this page are drawn."""
