"""What is publicly known: the schema, its rules, its types, and where descriptions come from."""
