"""What one protocol's readers see of another's records: written rules, and a page made of them."""
