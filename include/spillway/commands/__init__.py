"""The commands of ``python -m spillway``, one module a subject: they read words and show what lower layers give."""
