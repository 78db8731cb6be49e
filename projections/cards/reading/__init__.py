"""What a text or a JSON says, pure: its form, its facts, the values in them and the words that name them."""
