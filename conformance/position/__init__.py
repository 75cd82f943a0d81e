"""A shared position of four protocols: a written model, and a broker that is compared with the
model.
"""
