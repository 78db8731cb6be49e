"""Runs projections: folds the archive into a generation's tables, exactly once, whoever owns a partition (DESIGN 5)."""
