"""The PlugRL wire: a codec, four messages and a sans-I/O connection. Import from the modules; SPEC.md is the law."""
