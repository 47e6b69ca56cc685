"""SWAG (section 4.4): data and the task."""
