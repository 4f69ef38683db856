"""From prompts to images on disk: prompt lists, the call of the pipeline, the store of images."""
