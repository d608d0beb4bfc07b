"""What a user of accelerate does with a model that is too large: the layers that have no room stay on
the disk, and come back one by one."""

# It reads its submodule's weights without calling it, so accelerate has to bring in both together.
WHOLE_CLASSES = ["MultiheadAttention"]


def place(model, weight_bytes):
    """Which module goes where, with this many bytes of weights in memory."""
    import accelerate
    placed = accelerate.infer_auto_device_map(model, max_memory={"cpu": weight_bytes},
                                              no_split_module_classes=WHOLE_CLASSES)
    # A parameter beside submodules would not be brought in.
    for name in placed.keys() & dict(model.named_parameters()).keys():
        placed[name] = "cpu"
    return placed


def load(model, placed, checkpoint, directory):
    """The checkpoint into a model without memory of its own; directory: an empty one."""
    import accelerate
    accelerate.load_checkpoint_in_model(model, checkpoint, device_map=placed,
                                        offload_folder=directory)
    return accelerate.dispatch_model(model, placed, main_device="cpu", offload_dir=directory,
                                     force_hooks=True, preload_module_classes=WHOLE_CLASSES)
