"""What runs inside the training container.

``contract`` is what the platform promises to training code, ``model.ExitCode`` is what it answers with. ``session``
is the whole of it as one object, whatever the framework. ``loop`` trains any ``Program`` on it; ``digits`` (NumPy) and
``pytorch`` are two. ``python -m spillway.trainer digits`` is a container's command.
"""
