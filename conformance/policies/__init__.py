"""Pulsar's policies under load: rates, limits and refusals of real clients, at every level."""
