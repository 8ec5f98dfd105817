"""The machines of a site that come and go: its provider's API, and what it remembers.

A cloud's API is another one than Kubernetes': here machines are ordered and switched off, there their nodes appear.
"""
