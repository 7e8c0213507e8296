"""One module per step of the studio. Each shows what there is, and does what a form asks for."""
