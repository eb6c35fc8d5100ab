"""Logging that never waits for the GPU: device rings, a background worker, sinks."""
