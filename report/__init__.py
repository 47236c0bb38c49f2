"""Tables, figures and the page, made from run folders; nothing here imports torch or measures."""
