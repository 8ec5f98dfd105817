"""Container images: references, mirroring, the launch gate."""
