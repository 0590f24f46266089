"""The version; setup.py compiles it into the extension too."""

__version__ = "0.1.0"
