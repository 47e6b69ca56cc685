"""`train.budget`: as many steps as fit into a time."""
