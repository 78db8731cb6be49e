"""What the demo's agent finds, and what it writes: input files, its program with a fault, the check, the remedies."""

from __future__ import annotations

from typing import NamedTuple

REORDER_BELOW = 12

STOCK = {"coffee": 31, "cups": 4, "honey": 7, "tea": 54}

SALES = """\
day,item,quantity,price
mon,tea,6,3.50
mon,cups,2,8.00
tue,coffee,5,4.20
tue,tea,,3.50
wed,honey,3,6.40
thu,tea,9,3.50
fri,cups,1,8.00
fri,coffee,-1,4.20
sat,honey,2,6.40
"""
"""One line has no quantity, which the first program trips over; one is a return."""

PROGRAM = '''\
"""Adds up a week of sales."""

import csv
import json
from collections import Counter


def totals(path):
    """Sum of the week, and the item that brought the most."""
    by_item = Counter()
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            by_item[row["item"]] += int(row["quantity"]) * float(row["price"])
    return {"sum": round(sum(by_item.values()), 1), "best": by_item.most_common(1)[0]}


if __name__ == "__main__":
    print(json.dumps(totals("sales.csv")))
'''

CHECK = '''\
"""Checks totals.py against sums that were taken another way."""

import csv
import json

from totals import totals

found = totals("sales.csv")
with open("sales.csv", newline="") as file:
    rows = [row for row in csv.DictReader(file) if row["quantity"]]
expected = round(sum(int(row["quantity"]) * float(row["price"]) for row in rows), 2)
assert found["sum"] == expected, f"the sum is {found['sum']}, not {expected}"
assert isinstance(found["best"], str), f"the best item is {found['best']!r}, not a name"
print(json.dumps(found))
'''


class Remedy(NamedTuple):
    """A way to mend the program: which failure it fits, and what to write instead of what."""

    name: str
    symptom: str
    old: str
    new: str
    why: str


REMEDIES = (
    Remedy(
        "skip lines without a quantity",
        "invalid literal for int()",
        "        for row in csv.DictReader(file):\n",
        '        for row in csv.DictReader(file):\n            if not row["quantity"]:\n                continue\n',
        "a line without a quantity is no sale",
    ),
    Remedy(
        "name the best item alone",
        "the best item is",
        "by_item.most_common(1)[0]}",
        "by_item.most_common(1)[0][0]}",
        "a report names an item, it does not show a pair",
    ),
    Remedy(
        "round to whole cents",
        "the sum is",
        "sum(by_item.values()), 1)",
        "sum(by_item.values()), 2)",
        "money has two decimals",
    ),
)
