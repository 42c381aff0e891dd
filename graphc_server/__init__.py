"""Pictures over HTTP: the protocols that image applications speak, one queue for all of them, and a thread that paints.

`graphc serve --models DIR` starts it; `app.create_app` makes the ASGI application.
"""
