"""Processes that find each other, agree, and are told to end."""
