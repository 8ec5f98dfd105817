"""Replay: recorded or made-up jobs through the policies that decide live, and what came of it."""
