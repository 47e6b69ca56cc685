"""`--mode=extract`: vectors of texts and words."""
