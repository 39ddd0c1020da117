"""Programs that grade a client or a server against SPEC.md (SPEC 8); they need the extra `conformance`."""
