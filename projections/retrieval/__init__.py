"""Finding cards and memories again: passages, words, vectors, fusion."""
