"""GLUE (section 4.1): data and the tasks."""
