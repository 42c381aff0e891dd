"""Everything about pictures that needs no model: files and what they say of themselves, sizes, masks, tiles, grids."""
