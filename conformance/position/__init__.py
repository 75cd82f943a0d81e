"""One position for four protocols: a written model, and a broker that is held against it."""
