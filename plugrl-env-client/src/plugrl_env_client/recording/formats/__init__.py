"""The formats that episodes are recorded in, each written through the format itself."""
