"""Tables, plots, pages, archives and citations from what a run left in its
folder; no model is loaded."""
