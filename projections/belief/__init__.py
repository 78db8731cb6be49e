"""The pure parts that beliefs are made of."""
