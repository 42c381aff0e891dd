"""ComfyUI's protocol: graphs of nodes, which are checked, queued and carried out one node after the other.

Sources: comfyanonymous/ComfyUI, server.py, execution.py, nodes.py, comfy/samplers.py and comfy_extras.
"""
