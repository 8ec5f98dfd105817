"""What runs inside the training container."""
