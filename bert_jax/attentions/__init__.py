"""`predict.attentions`: who attends to whom, in files and on a page."""
