"""Seeing every wait for the GPU: probes, sites and guards."""
