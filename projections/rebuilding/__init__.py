"""Making read models anew beside those that are read: rebuilds, dry runs, verification, repair, swap."""
