"""From noise to pictures: noise levels, schedulers, predictions, samplers, guidance, and the names that people know them by."""
