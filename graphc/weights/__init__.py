"""Where the stored weights of an engine come from, and putting others in: recipes, checkpoints, refitting."""
