"""Diffusers pipelines as a configuration names them: loading, schedulers, devices, identity."""
