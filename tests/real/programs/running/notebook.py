"""Jupyter: a notebook whose kernel computes (nbclient, ipykernel)."""
import os

import nbformat
from _real import out
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient


class Manager(AsyncKernelManager):
    kernel_spec = KernelSpec(argv=[os.environ["REAL_PYTHON"], "-m", "ipykernel_launcher", "-f", "{connection_file}"])


cells = ["from _real import *\nmodel = mlp()", "with torch.no_grad():\n    for i in range(3):\n        print(digest(model(rows(i))))",
         "model[0].weight.data.mul_(2)\nprint(digest(model(rows())))"]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
NotebookClient(book, timeout=200, kernel_manager_class=Manager).execute()
for i, cell in enumerate(book.cells):
    out(f"cell{i}", "".join(output.get("text", "") for output in cell.outputs if output.get("name") == "stdout"))
