"""The operations of the HTTP API, one module or folder for each tag of /openapi.json."""
