"""Reference sets: photographs chosen by a rule, cropped and resized once, with checksums."""
