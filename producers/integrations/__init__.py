"""Faces for other libraries. Each needs its library, and nothing else of ours imports it."""
