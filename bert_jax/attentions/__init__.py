"""`predict.attentions`: who attends to whom, in a safetensors file."""
