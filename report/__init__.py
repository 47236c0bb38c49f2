"""Tables, figures and the page, made from run folders."""
