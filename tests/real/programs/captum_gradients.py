"""captum: integrated gradients."""
from _real import mlp, out, rows
from captum.attr import IntegratedGradients

out("attributed", IntegratedGradients(mlp()).attribute(rows(count=2), target=3, n_steps=8))
