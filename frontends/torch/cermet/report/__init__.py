"""What Cermet says about graphs: the findings, as a table and as a page."""
