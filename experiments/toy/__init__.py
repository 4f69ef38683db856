"""The embedded world: captioned scenes, the models that paint and judge them, their training."""
