"""The main job on the sandbox, with a node lost in mid-training, and the proof that nothing else was."""

from spillway.sandbox.demo.breaks import BREAKS
from spillway.sandbox.demo.story import run_demo

__all__ = ["BREAKS", "run_demo"]
