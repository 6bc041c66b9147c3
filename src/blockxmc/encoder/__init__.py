"""A small transformer beside the linear model: training (PyTorch), export, and serving (ONNX Runtime)."""
