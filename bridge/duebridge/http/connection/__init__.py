"""A client's connection: uvicorn's protocol, with bounds on what a client may keep."""
