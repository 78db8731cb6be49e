"""The pure parts of the read model ``memories``: normal forms, tables, validity and importance."""
