"""Programs with client libraries of other languages, built on demand outside the tree."""
