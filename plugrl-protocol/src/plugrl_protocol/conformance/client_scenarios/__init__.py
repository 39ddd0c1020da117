"""The scenarios of the client checker (SPEC 8): watch; probe basic, resync, text and reject."""
