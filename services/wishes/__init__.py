"""Wishes about conduct in people's words, read without a model: by a lexicon, in English and Chinese."""
