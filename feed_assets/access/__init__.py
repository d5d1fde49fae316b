"""Who asks, and what they may do with which entities."""
